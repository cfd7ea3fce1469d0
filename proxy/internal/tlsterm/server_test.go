package tlsterm_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
)

func TestCertificateByName(t *testing.T) {
	a := newAuthority(t, "test")
	first, shop, wild := a.pair("default.example.com"), a.pair("shop.example.com", "SHOP.example.net"), a.pair("*.example.com")
	ec, rsa := a.pair("both.example.org"), a.pairOf(rsaKey(t), "both.example.org")
	s := newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{first, wild, shop, rsa, ec}})
	onlyECDSA := []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}
	for name, test := range map[string]struct {
		sni     string
		ciphers []uint16
		want    tlsterm.Pair
	}{
		"its name":                     {"shop.example.com", nil, shop},
		"in capitals":                  {"SHOP.example.COM", nil, shop},
		"capitals in the certificate":  {"shop.example.net", nil, shop},
		"wildcard":                     {"other.example.com", nil, wild},
		"wildcard is one label":        {"a.b.example.com", nil, first},
		"nor none":                     {"example.com", nil, first},
		"an unknown one":               {"example.test", nil, first},
		"none":                         {"", nil, first},
		"two of a name":                {"both.example.org", nil, rsa},
		"two of a name, one of a kind": {"both.example.org", onlyECDSA, ec},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := &tls.Config{ServerName: test.sni, InsecureSkipVerify: true}
			if test.ciphers != nil {
				cfg.CipherSuites, cfg.MaxVersion = test.ciphers, tls.VersionTLS12
			}
			seen, cerr, serr := meet(t, s, cfg)
			must(t, errors.Join(cerr, serr))
			if got, want := seen.PeerCertificates[0].SerialNumber.String(), serialOf(t, test.want.Cert); got != want {
				t.Errorf("got certificate %s (%v), want %s", got, seen.PeerCertificates[0].DNSNames, want)
			}
		})
	}
}

func TestALPN(t *testing.T) {
	a := newAuthority(t, "test")
	s := newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{a.pair("a.test")}, ALPN: []string{"h2", "http/1.1"}})
	for offer, want := range map[string]string{"http/1.1,h2": "h2", "x,http/1.1": "http/1.1", "": ""} {
		cfg := &tls.Config{ServerName: "a.test", RootCAs: a.pool()}
		if offer != "" {
			cfg.NextProtos = strings.Split(offer, ",")
		}
		seen, cerr, serr := meet(t, s, cfg)
		must(t, errors.Join(cerr, serr))
		if seen.NegotiatedProtocol != want {
			t.Errorf("offered %q: agreed upon %q, want %q", offer, seen.NegotiatedProtocol, want)
		}
	}
}

// TestOtherProtocolsAreRefused: a client that offers only protocols that are not spoken gets the alert no_application_protocol
// (RFC 7301, 3.2), also if it offers http/1.1 alone where h2 is spoken, which crypto/tls lets in without one.
func TestOtherProtocolsAreRefused(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, "test")
	for spoken, offers := range map[string][]string{
		"h2":            {"http/1.1", "http/1.1,x", "none", "none,http/1.1", "none,none-"},
		"h2,x":          {"http/1.1"},
		"h2,http/1.1":   {"http/1.0"},
		"http/1.1":      {"h2"},
		"postgresql":    {"http/1.1"},
		"acme-tls/1,h2": {"http/1.1"},
	} {
		s := newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{a.pair("a.test")}, ALPN: strings.Split(spoken, ",")})
		for _, offer := range offers {
			for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
				cfg := &tls.Config{ServerName: "a.test", RootCAs: a.pool(), NextProtos: strings.Split(offer, ","), MaxVersion: version}
				_, cerr, serr := meet(t, s, cfg)
				var failed *tlsterm.Error
				if !errors.As(serr, &failed) || failed.Kind != tlsterm.Protocol {
					t.Errorf("%s spoken, %s offered: the server has %v", spoken, offer, serr)
				}
				if cerr == nil || !strings.Contains(cerr.Error(), "no application protocol") {
					t.Errorf("%s spoken, %s offered: the client has %v", spoken, offer, cerr)
				}
			}
		}
	}
}

// TestNoCBC: a client of TLS 1.2 gets no cipher suite with CBC, unless older versions are spoken.
func TestNoCBC(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, "test")
	pairs := []tlsterm.Pair{a.pair("a.test")}
	with := func(least uint16, suites ...uint16) error {
		s := newServer(t, tlsterm.Config{Certificates: pairs, MinVersion: least})
		_, cerr, serr := meet(t, s, &tls.Config{ServerName: "a.test", RootCAs: a.pool(), MaxVersion: tls.VersionTLS12, CipherSuites: suites})
		return errors.Join(cerr, serr)
	}
	if err := with(0, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256); err == nil {
		t.Error("a client with suites of CBC alone is served")
	}
	must(t, with(0, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384))
	must(t, with(tls.VersionTLS11, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA))
}

// TestMinVersion: that version and later ones are spoken, earlier ones are not.
func TestMinVersion(t *testing.T) {
	a := newAuthority(t, "test")
	pairs := []tlsterm.Pair{a.pair("a.test")}
	versions := []uint16{tls.VersionTLS10, tls.VersionTLS11, tls.VersionTLS12, tls.VersionTLS13}
	for _, least := range append(versions, 0) {
		s := newServer(t, tlsterm.Config{Certificates: pairs, MinVersion: least})
		if least == 0 {
			least = tls.VersionTLS12 // by default
		}
		for _, v := range versions {
			seen, _, err := meet(t, s, &tls.Config{ServerName: "a.test", RootCAs: a.pool(), MinVersion: v, MaxVersion: v})
			if v >= least && (err != nil || seen.Version != v) {
				t.Errorf("least %x, client %x: %v", least, v, err)
			}
			var failed *tlsterm.Error
			if v < least && (!errors.As(err, &failed) || failed.Kind != tlsterm.Version) {
				t.Errorf("least %x, client %x: %v", least, v, err)
			}
		}
	}
}

// TestKinds meets each kind of failed handshake, as crypto/tls reports it.
func TestKinds(t *testing.T) {
	a, clients := newAuthority(t, "test"), newAuthority(t, "clients")
	pairs := []tlsterm.Pair{a.pair("a.test")}
	plain := tlsterm.Config{Certificates: pairs, MinVersion: tls.VersionTLS12, ALPN: []string{"h2"}, Timeout: condition.Patience}
	mutual := plain
	mutual.ClientCA = clients.file
	hasty := plain
	hasty.Timeout = 20 * time.Millisecond
	trusting := func(f func(*tls.Config)) func(net.Conn) {
		return func(c net.Conn) {
			cfg := &tls.Config{ServerName: "a.test", RootCAs: a.pool()}
			f(cfg)
			conn := tls.Client(c, cfg)
			if conn.Handshake() == nil {
				conn.Read(make([]byte, 1))
			}
		}
	}
	stranger := a.pair("stranger")
	for name, test := range map[string]struct {
		cfg    tlsterm.Config
		client func(net.Conn)
		want   tlsterm.FailureKind
	}{
		"silence": {hasty, func(c net.Conn) { io.Copy(io.Discard, c) }, tlsterm.Timeout},
		"half a hello": {hasty, func(c net.Conn) {
			c.Write([]byte{22, 3, 1, 2, 0, 1})
			io.Copy(io.Discard, c)
		}, tlsterm.Timeout},
		"closed":         {plain, func(c net.Conn) { c.Close() }, tlsterm.Closed},
		"reset":          {plain, func(c net.Conn) { c.(*net.TCPConn).SetLinger(0); c.Write([]byte{22}); c.Close() }, tlsterm.Closed},
		"HTTP":           {plain, func(c net.Conn) { io.WriteString(c, "GET / HTTP/1.1\r\n\r\n"); io.Copy(io.Discard, c) }, tlsterm.NotTLS},
		"an old version": {plain, trusting(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }), tlsterm.Version},
		"no common cipher": {plain, trusting(func(c *tls.Config) {
			c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
		}), tlsterm.Cipher},
		"no common protocol":     {plain, trusting(func(c *tls.Config) { c.NextProtos = []string{"x"} }), tlsterm.Protocol},
		"no certificate":         {mutual, trusting(func(*tls.Config) {}), tlsterm.Uncertified},
		"no certificate, in 1.2": {mutual, trusting(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), tlsterm.Uncertified},
		"another's certificate": {mutual, trusting(func(c *tls.Config) {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				cert, err := tls.LoadX509KeyPair(stranger.Cert, stranger.Key)
				return &cert, err
			}
		}), tlsterm.Uncertified},
		"distrust": {plain, trusting(func(c *tls.Config) { c.RootCAs = x509.NewCertPool() }), tlsterm.Alert},
		"distrust, as OpenSSL says it": {plain, func(c net.Conn) {
			trusting(func(c *tls.Config) { c.RootCAs = x509.NewCertPool() })(&plainAlerts{Conn: c})
		}, tlsterm.Alert},
		"distrust, in 1.2": {plain, trusting(func(c *tls.Config) { c.RootCAs, c.MaxVersion = x509.NewCertPool(), tls.VersionTLS12 }), tlsterm.Alert},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, test.cfg)
			c, sc := sockets.TCPPair(t)
			gone := make(chan struct{})
			go func() { defer close(gone); test.client(c) }()
			_, err := s.Handshake(context.Background(), sc)
			sc.Close()
			<-gone
			var failed *tlsterm.Error
			if !errors.As(err, &failed) || failed.Kind != test.want {
				t.Fatalf("got %v (%+v), want kind %v", err, failed, test.want)
			}
			if !strings.HasPrefix(err.Error(), "TLS handshake from 127.0.0.1:") {
				t.Errorf("the error does not name the client of the handshake: %v", err)
			}
			if n := s.Stats().Failed.Of(int(test.want)); n != 1 || s.Stats().Failed.Total() != 1 || s.Stats().Counts().Active != 0 {
				t.Errorf("counted %d of %v, %d failures", n, test.want, s.Stats().Failed.Total())
			}
		})
	}
}

// plainAlerts sends an alert in the clear in place of everything behind its ClientHello.
type plainAlerts struct {
	net.Conn
	begun bool
}

func (c *plainAlerts) Write(p []byte) (int, error) {
	if c.begun {
		_, err := c.Conn.Write([]byte{21, 3, 3, 0, 2, 2, 48})
		return len(p), err
	}
	c.begun = true
	return c.Conn.Write(p)
}

// TestLongHandshakes: a peer's certificates may have 32 KiB, an endpoint's 64. A peer that sends more is refused before its
// message is whole.
func TestLongHandshakes(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, "test")
	plain := a.pair("a.test")
	cert, err := tls.LoadX509KeyPair(plain.Cert, plain.Key)
	must(t, err)
	padded := func(size int) []tls.Certificate { // with copies of its authority
		long := tls.Certificate{Certificate: slices.Clone(cert.Certificate), PrivateKey: cert.PrivateKey}
		for n := 0; n < size; n += len(a.cert.Raw) {
			long.Certificate = append(long.Certificate, a.cert.Raw)
		}
		return []tls.Certificate{long}
	}
	server := newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{plain}, ClientCA: a.file, Timeout: condition.Patience})
	client := newClient(t, tlsterm.ClientConfig{CA: a.file, SNI: "a.test"})
	for _, test := range []struct {
		size, endpoint int // of the certificates
		words          string
	}{
		{28 << 10, 60 << 10, ""},
		{40 << 10, 70 << 10, "longer than"},
		{250 << 10, 250 << 10, "longer than"},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			cfg := &tls.Config{ServerName: "a.test", RootCAs: a.pool(), MaxVersion: version, Certificates: padded(test.size)}
			_, _, err := meet(t, server, cfg)
			if test.words == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), test.words) {
				t.Errorf("a client with %d bytes of certificates in %x: %v, want %q", test.size, version, err, test.words)
			}
			c, sc := sockets.TCPPair(t)
			go func() {
				_ = tls.Server(sc, &tls.Config{MaxVersion: version, Certificates: padded(test.endpoint)}).Handshake()
				_, _ = io.Copy(io.Discard, sc)
			}()
			_, err = client.Handshake(context.Background(), c, tlsterm.Peer{Host: "a.test"})
			if test.words == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), test.words) {
				t.Errorf("an endpoint with %d bytes of certificates in %x: %v, want %q", test.endpoint, version, err, test.words)
			}
			c.Close()
		}
	}
}

// TestNoDeadline: a handshake's bound does not remain.
func TestNoDeadline(t *testing.T) {
	a := newAuthority(t, "test")
	s := newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{a.pair("a.test")}, Timeout: 500 * time.Millisecond})
	conn, err := tls.Dial("tcp", serve(t, s), &tls.Config{ServerName: "a.test", RootCAs: a.pool()})
	must(t, err)
	defer conn.Close()
	past := time.NewTimer(600 * time.Millisecond)
	<-past.C
	_, err = conn.Write([]byte("x"))
	must(t, err)
	_, err = io.ReadFull(conn, make([]byte, 1))
	must(t, err)
}

// still is a connection of a process that stands still before some of its calls, past the deadline.
type still struct {
	*net.TCPConn
	atRead, atWrite []int // calls, counted from 0
	reads, writes   int
	end             time.Time
}

func (s *still) SetDeadline(end time.Time) error {
	s.end = end
	return s.TCPConn.SetDeadline(end)
}

func (s *still) stands(call *int, at []int, ready func() bool) {
	*call++
	if !slices.Contains(at, *call-1) {
		return
	}
	for !ready() || !time.Now().After(s.end.Add(20*time.Millisecond)) {
		time.Sleep(time.Millisecond)
	}
}

func (s *still) Read(p []byte) (int, error) {
	s.stands(&s.reads, s.atRead, func() bool {
		raw, err := s.SyscallConn()
		n := 0
		if err == nil {
			err = raw.Control(func(fd uintptr) {
				n, _, err = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			})
		}
		return err == nil && n > 0
	})
	return s.TCPConn.Read(p)
}

func (s *still) Write(p []byte) (int, error) {
	s.stands(&s.writes, s.atWrite, func() bool { return true })
	return s.TCPConn.Write(p)
}

// TestStoodStill: a handshake is not refused because the process stood still past its end, as by SIGSTOP, if the client's bytes
// have come meanwhile. It has its time once more, but only once.
func TestStoodStill(t *testing.T) {
	t.Parallel()

	a := newAuthority(t, "test")
	s := newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{a.pair("a.test")}, Timeout: time.Second})
	for name, c := range map[string]struct {
		conn still
		ok   bool
	}{
		"at the hello":           {still{atRead: []int{0}}, true},
		"at the answer":          {still{atWrite: []int{0}}, true},
		"at the client's answer": {still{atRead: []int{1}}, true},
		"twice":                  {still{atRead: []int{0, 2}}, false}, // 1 is the second attempt
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			client, served := sockets.TCPPair(t)
			conn, done := &c.conn, make(chan error, 1)
			conn.TCPConn = served
			go func() {
				_, err := s.Handshake(t.Context(), conn)
				conn.Close()
				done <- err
			}()
			_ = tls.Client(client, &tls.Config{ServerName: "a.test", RootCAs: a.pool()}).Handshake()
			var failed *tlsterm.Error
			if err := <-done; (err == nil) != c.ok || !c.ok && (!errors.As(err, &failed) || failed.Kind != tlsterm.Timeout) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// A mute connection sends, and does not read until listen is closed.
type mute struct {
	net.Conn
	listen chan struct{}
}

func (m *mute) Read(p []byte) (int, error) {
	<-m.listen
	return m.Conn.Read(p)
}

// stuck is a connection whose peer takes nothing from some write on, until it is closed.
type stuck struct {
	net.Conn
	after atomic.Int32 // writes
	shut  chan struct{}
	once  sync.Once
}

func newStuck(c net.Conn, after int32) *stuck {
	s := &stuck{Conn: c, shut: make(chan struct{})}
	s.after.Store(after)
	return s
}

func (s *stuck) Write(p []byte) (int, error) {
	if s.after.Add(-1) < 0 {
		<-s.shut
	}
	return s.Conn.Write(p)
}

func (s *stuck) Close() error {
	defer s.once.Do(func() { close(s.shut) })
	return s.Conn.Close()
}

// TestLimit: a handshake waits for its turn, and not longer than it may take. One that
// waits for its client has none, be it before its hello has come or after.
func TestLimit(t *testing.T) {
	a := newAuthority(t, "test")
	limit := tlsterm.NewLimit(2, 1)
	cfg := tlsterm.Config{Certificates: []tlsterm.Pair{a.pair("a.test")}, Limit: limit, Timeout: condition.Patience}
	s := newServer(t, cfg)
	cfg.Timeout = 500 * time.Millisecond
	hasty := newServer(t, cfg)
	trust := &tls.Config{ServerName: "a.test", RootCAs: a.pool()}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 3)
	silent, c := sockets.TCPPair(t)
	go func() { _, err := s.Handshake(ctx, c); ended <- err }()
	_, err := silent.Write([]byte{22, 3, 1, 2, 0, 1})
	must(t, err)
	served(t, s, a) // though another has begun

	stalls, c := sockets.TCPPair(t)
	go func() { _, err := s.Handshake(ctx, c); ended <- err }()
	m := &mute{stalls, make(chan struct{})}
	gone := make(chan struct{}, 2)
	go func() { _ = tls.Client(m, trust).Handshake(); gone <- struct{}{} }()
	condition.Await(t, "both have begun", func() bool { return s.Stats().Counts().Active == 2 })
	served(t, s, a) // though a hello was answered to which nothing follows

	full, c := sockets.TCPPair(t)
	go func() { _, err := s.Handshake(ctx, newStuck(c, 0)); ended <- err }()
	go func() { _ = tls.Client(full, trust).Handshake(); gone <- struct{}{} }()
	condition.Await(t, "a handshake is under way", func() bool { return limit.Handshakes() == 1 })

	var failed *tlsterm.Error
	if _, _, err := meet(t, hasty, trust); !errors.As(err, &failed) || failed.Kind != tlsterm.Busy {
		t.Errorf("got %v, want that too many are under way", err)
	}
	waits := make(chan error, 1)
	go func() {
		_, cerr, serr := meet(t, s, trust)
		waits <- errors.Join(cerr, serr)
	}()
	condition.Await(t, "another waits", func() bool { return s.Stats().Counts().Active == 4 })
	cancel()
	for range 3 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("one that was canceled ended with %v", err)
		}
	}
	must(t, <-waits)
	close(m.listen)
	<-gone
	<-gone
	if n := limit.Handshakes(); n != 0 {
		t.Errorf("%d turns are taken", n)
	}
}

// TestTurnOfOneThatHasGone: a handshake that waits for its turn ends when its client is reset.
func TestTurnOfOneThatHasGone(t *testing.T) {
	a := newAuthority(t, "test")
	limit := tlsterm.NewLimit(0, 1)
	s := newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{a.pair("a.test")}, Limit: limit, Timeout: time.Hour})
	trust := &tls.Config{ServerName: "a.test", RootCAs: a.pool()}
	ctx, cancel := context.WithCancel(context.Background())
	full, c := sockets.TCPPair(t)
	ended := make(chan error, 1)
	go func() { _, err := s.Handshake(ctx, newStuck(c, 0)); ended <- err }()
	gone := make(chan struct{}, 2)
	go func() { _ = tls.Client(full, trust).Handshake(); gone <- struct{}{} }()
	condition.Await(t, "a handshake is under way", func() bool { return limit.Handshakes() == 1 })

	leaves, left := sockets.TCPPair(t)
	waits := make(chan error, 1)
	go func() { _, err := s.Handshake(context.Background(), left); waits <- err }()
	go func() { _ = tls.Client(leaves, trust).Handshake(); gone <- struct{}{} }()
	condition.Await(t, "another has begun", func() bool { return s.Stats().Counts().Active == 2 })
	must(t, errors.Join(leaves.SetLinger(0), leaves.Close()))
	var failed *tlsterm.Error
	select {
	case err := <-waits:
		if !errors.As(err, &failed) || failed.Kind != tlsterm.Closed {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(condition.Patience):
		t.Error("it waits for its turn although its client has gone")
	}
	cancel()
	<-ended
	<-gone
	<-gone
}

func TestSessions(t *testing.T) {
	limit := tlsterm.NewLimit(2, 0)
	must(t, errors.Join(limit.Enter(), limit.Enter()))
	if err := limit.Enter(); !errors.Is(err, tlsterm.ErrSessions) || limit.Sessions() != 2 {
		t.Errorf("a third session: %v, %d are counted", err, limit.Sessions())
	}
	limit.Leave()
	must(t, limit.Enter())
}

func TestBadConfig(t *testing.T) {
	a, b := newAuthority(t, "test"), newAuthority(t, "other")
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	good, other := a.pair("a.test"), b.pair("b.test")
	empty := write("empty.pem", "")
	large := write("large.pem", strings.Repeat("x", 4<<20+1))
	files := newFiles(t, nil)
	for name, test := range map[string]struct {
		cfg  tlsterm.Config
		want []string
	}{
		"no certificate":        {tlsterm.Config{}, []string{"needs a certificate"}},
		"not there":             {tlsterm.Config{Certificates: []tlsterm.Pair{{Cert: dir + "/none", Key: good.Key}}}, []string{dir + "/none: no such file"}},
		"empty":                 {tlsterm.Config{Certificates: []tlsterm.Pair{{Cert: empty, Key: good.Key}}}, []string{empty + ": "}},
		"of another":            {tlsterm.Config{Certificates: []tlsterm.Pair{{Cert: good.Cert, Key: other.Key}}}, []string{good.Cert + ": ", other.Key, "does not match"}},
		"a directory":           {tlsterm.Config{Certificates: []tlsterm.Pair{{Cert: dir, Key: good.Key}}}, []string{dir + " is not a regular file"}},
		"too large":             {tlsterm.Config{Certificates: []tlsterm.Pair{{Cert: large, Key: good.Key}}}, []string{large + " is larger than 4 MiB"}},
		"no authority":          {tlsterm.Config{Certificates: []tlsterm.Pair{good}, ClientCA: empty}, []string{empty + " contains no certificate"}},
		"several, each is told": {tlsterm.Config{Certificates: []tlsterm.Pair{{Cert: empty, Key: empty}, {Cert: large, Key: large}}, ClientCA: dir}, []string{empty, large, dir + " is not a regular file"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, test.cfg.Files = range []*tlsterm.Files{nil, files} {
				_, err := tlsterm.NewServer(&test.cfg)
				if err == nil {
					t.Fatal("accepted")
				}
				for _, want := range test.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%v: it does not contain %q", err, want)
					}
				}
			}
		})
	}
	if n := files.Sources(); n != 0 {
		t.Errorf("%d files are followed without a user", n)
	}
}

// shaken returns the server's side of a connection whose handshake is over.
func shaken(t *testing.T, s *tlsterm.Server, client *tls.Config) *tlsterm.Conn {
	t.Helper()
	c, sc := sockets.TCPPair(t)
	failed := make(chan error, 1)
	go func() { failed <- tls.Client(c, client).Handshake() }()
	conn, err := s.Handshake(context.Background(), sc)
	must(t, errors.Join(err, <-failed))
	return conn
}

// TestAccepts: a client whose handshake is over is accepted by another server if that one would have
// accepted its certificate and its version, and by the same one as long as its authorities are the same.
func TestAccepts(t *testing.T) {
	a, old, young := newAuthority(t, "test"), newAuthority(t, "old"), newAuthority(t, "young")
	files := newFiles(t, &tlsterm.FilesConfig{Poll: time.Hour, Settle: 10 * time.Millisecond})
	server := func(ca string, version uint16) *tlsterm.Server {
		return newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{a.pair("a.test")}, ClientCA: ca, MinVersion: version, Files: files})
	}
	asks, asksOthers, plain, late := server(old.file, 0), server(young.file, 0), server("", 0), server("", tls.VersionTLS13)
	pair := old.pair("client.test")
	cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	must(t, err)
	client := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}, MaxVersion: tls.VersionTLS12}
	check := func(what string, err error, want tlsterm.FailureKind) {
		t.Helper()
		var failed *tlsterm.Error
		if (err != nil) != (want != tlsterm.Other) || err != nil && (!errors.As(err, &failed) || failed.Kind != want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	shown, hidden := shaken(t, asks, client), shaken(t, plain, client)
	check("another authority", asksOthers.Accepts(shown), tlsterm.Uncertified)
	check("none", plain.Accepts(shown), tlsterm.Other)
	check("the same again", server(old.file, 0).Accepts(shown), tlsterm.Other)
	check("a later version", late.Accepts(shown), tlsterm.Version)
	check("none was requested", asks.Accepts(hidden), tlsterm.Uncertified)
	check("none is requested", plain.Accepts(hidden), tlsterm.Other)
	check("no TLS, where a certificate is requested", asks.Accepts(nil), tlsterm.Uncertified)
	check("no TLS, where none is", plain.Accepts(nil), tlsterm.Other)

	same := shaken(t, asks, client)
	text, err := os.ReadFile(young.file)
	must(t, err)
	must(t, os.WriteFile(old.file, text, 0o600))
	condition.Await(t, "its file is read", func() bool { return asks.Accepts(same) != nil })
	check("the file is another", asks.Accepts(same), tlsterm.Uncertified)
}

// openssl runs s_client against a server that answers "served" to each client, and
// returns its output.
func openssl(t *testing.T, s *tlsterm.Server, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("openssl")
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal("openssl is not installed")
	}
	if err != nil {
		t.Skip("openssl is not installed")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	sockets.Serve(t, l, func(c net.Conn) {
		if conn, err := s.Handshake(context.Background(), c); err == nil {
			io.WriteString(conn, "served\n")
			conn.Close()
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), condition.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append([]string{"s_client", "-connect", l.Addr().String(), "-verify_return_error", "-ign_eof"}, args...)...)
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	_ = cmd.Run() // its output is more specific than its status
	return said.String()
}

// TestOpenSSL has another implementation as the client.
func TestOpenSSL(t *testing.T) {
	a, clients := newAuthority(t, "test"), newAuthority(t, "clients")
	mine, sess := clients.pair("me"), filepath.Join(t.TempDir(), "session")
	pairs := []tlsterm.Pair{a.pair("other.test"), a.pairOf(rsaKey(t), "*.a.test")}
	plain := tlsterm.Config{Name: "web", Certificates: pairs, ALPN: []string{"h2"}, Tickets: tlsterm.NewTickets(nil)}
	mutual := plain
	mutual.ClientCA = clients.file
	base := []string{"-CAfile", a.file, "-servername", "x.a.test", "-verify_hostname", "x.a.test"}
	for _, test := range []struct { // in this order: a session is kept for the next
		name string
		cfg  tlsterm.Config
		args []string
		want []string
	}{
		{"1.2", plain, []string{"-tls1_2"}, []string{"served", "TLSv1.2", "Verify return code: 0"}},
		{"1.3", plain, []string{"-tls1_3", "-alpn", "x,h2"}, []string{"served", "TLSv1.3", "ALPN protocol: h2"}},
		{"1.1", plain, []string{"-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"}, []string{"alert protocol version"}},
		{"no common protocol", plain, []string{"-alpn", "x"}, []string{"alert no application protocol"}},
		{"its certificate", mutual, []string{"-cert", mine.Cert, "-key", mine.Key, "-sess_out", sess}, []string{"served", "New, TLSv1.3"}},
		{"resumed after a reload", mutual, []string{"-cert", mine.Cert, "-key", mine.Key, "-sess_in", sess}, []string{"served", "Reused, TLSv1.3"}},
		{"no certificate", mutual, nil, []string{"certificate required"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			said := openssl(t, newServer(t, test.cfg), append(append([]string{}, base...), test.args...)...)
			for _, want := range test.want {
				if !strings.Contains(said, want) {
					t.Errorf("it does not write %q:\n%s", want, said)
				}
			}
		})
	}
}
