package tlsterm_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
)

// origin is a server of TLS by crypto/tls alone, which echoes; it returns the state of
// each client.
func origin(t testing.TB, cfg *tls.Config) (addr string, clients <-chan tls.ConnectionState) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	told := make(chan tls.ConnectionState, 100)
	sockets.Serve(t, l, func(c net.Conn) {
		conn := tls.Server(c, cfg)
		if conn.Handshake() == nil {
			told <- conn.ConnectionState()
			sockets.Echo(conn)
		}
	})
	return l.Addr().String(), told
}

func newClient(t testing.TB, cfg tlsterm.ClientConfig) *tlsterm.Client {
	t.Helper()
	c, err := tlsterm.NewClient(&cfg)
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

// reach does a handshake with an endpoint and has a byte echoed.
func reach(t testing.TB, c *tlsterm.Client, addr string, peer tlsterm.Peer) (tls.ConnectionState, error) {
	t.Helper()
	raw, err := net.Dial("tcp", addr)
	must(t, err)
	defer raw.Close()
	conn, err := c.Handshake(context.Background(), raw, peer)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer conn.Close()
	if inner, ok := conn.NetConn().(interface{ NetConn() net.Conn }); !ok || inner.NetConn() != raw {
		t.Errorf("the connection within is not to be had, of %T", conn.NetConn())
	}
	must(t, raw.SetDeadline(time.Now().Add(condition.Patience)))
	if _, err := conn.Write([]byte("x")); err != nil {
		return tls.ConnectionState{}, err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return conn.ConnectionState(), err
}

func load(t testing.TB, p tlsterm.Pair) []tls.Certificate {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(p.Cert, p.Key)
	must(t, err)
	return []tls.Certificate{cert}
}

// TestVerified: an endpoint's certificate must be of the authority, and for the requested
// name, or for its own address.
func TestVerified(t *testing.T) {
	a, other := newAuthority(t, "test"), newAuthority(t, "other")
	named := load(t, a.pair("db.internal"))
	addressed := load(t, a.pair("127.0.0.1"))
	old, err := tls.X509KeyPair(a.issue(&x509.Certificate{ // without subject alternative names
		SerialNumber: big.NewInt(serial.Add(1)), Subject: pkix.Name{CommonName: "db.internal"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, newKey(t)))
	must(t, err)
	for name, test := range map[string]struct {
		cert []tls.Certificate
		cfg  tlsterm.ClientConfig
		host string
		want string // the error's words; "" if it is accepted
		kind tlsterm.FailureKind
		sni  string
	}{
		"the endpoint's name":     {named, tlsterm.ClientConfig{CA: a.file}, "db.internal", "", 0, "db.internal"},
		"sni":                     {named, tlsterm.ClientConfig{CA: a.file, SNI: "db.internal"}, "127.0.0.1", "", 0, "db.internal"},
		"its address":             {addressed, tlsterm.ClientConfig{CA: a.file}, "127.0.0.1", "", 0, ""},
		"another name":            {named, tlsterm.ClientConfig{CA: a.file}, "db2.internal", "db2.internal", tlsterm.Uncertified, ""},
		"sni of another":          {named, tlsterm.ClientConfig{CA: a.file, SNI: "db2.internal"}, "db.internal", "db2.internal", tlsterm.Uncertified, ""},
		"an address it has not":   {named, tlsterm.ClientConfig{CA: a.file}, "127.0.0.1", "127.0.0.1", tlsterm.Uncertified, ""},
		"a common name alone":     {[]tls.Certificate{old}, tlsterm.ClientConfig{CA: a.file}, "db.internal", "use SANs", tlsterm.Uncertified, ""},
		"another authority":       {named, tlsterm.ClientConfig{CA: other.file}, "db.internal", "unknown authority", tlsterm.Uncertified, ""},
		"the system's":            {named, tlsterm.ClientConfig{}, "db.internal", "unknown authority", tlsterm.Uncertified, ""},
		"too old a version":       {named, tlsterm.ClientConfig{CA: a.file, MinVersion: tls.VersionTLS13}, "db.internal", "protocol version", tlsterm.Alert, ""},
		"a version it still is":   {named, tlsterm.ClientConfig{CA: a.file, MinVersion: tls.VersionTLS12}, "db.internal", "", 0, "db.internal"},
		"a timeout that is met":   {named, tlsterm.ClientConfig{CA: a.file, Timeout: condition.Patience}, "db.internal", "", 0, "db.internal"},
		"no name, nor an address": {named, tlsterm.ClientConfig{CA: a.file}, "", "ServerName", tlsterm.Other, ""},
	} {
		t.Run(name, func(t *testing.T) {
			addr, clients := origin(t, &tls.Config{Certificates: test.cert, MaxVersion: tls.VersionTLS12})
			c := newClient(t, test.cfg)
			_, err := reach(t, c, addr, tlsterm.Peer{Host: test.host})
			if test.want == "" {
				must(t, err)
				if got := <-clients; got.ServerName != test.sni {
					t.Errorf("requested %q, want %q", got.ServerName, test.sni)
				}
				return
			}
			var failed *tlsterm.Error
			if !errors.As(err, &failed) || failed.Kind != test.kind || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v (%+v), want kind %v with %q", err, failed, test.kind, test.want)
			}
			if got := record.CauseOf(err); got != record.CauseTLS {
				t.Errorf("the cause of %v is %v", err, got)
			}
			if !strings.HasPrefix(err.Error(), "TLS handshake with "+addr+": ") || c.Stats().Failed.Of(int(test.kind)) != 1 {
				t.Errorf("%v; counted %d", err, c.Stats().Failed.Of(int(test.kind)))
			}
		})
	}
}

func TestEndpointSilent(t *testing.T) {
	a := newAuthority(t, "test")
	c := newClient(t, tlsterm.ClientConfig{CA: a.file, Timeout: 20 * time.Millisecond})
	raw, _ := sockets.TCPPair(t)
	_, err := c.Handshake(context.Background(), raw, tlsterm.Peer{Host: "a.test"})
	var failed *tlsterm.Error
	if !errors.As(err, &failed) || failed.Kind != tlsterm.Timeout || !strings.Contains(err.Error(), "within 20ms") {
		t.Errorf("got %v", err)
	}
}

// TestEndpointTurns: a handshake that waits for the endpoint takes no turn, be it before
// its answer or in the middle of it. Processing an answer takes one.
func TestEndpointTurns(t *testing.T) {
	a := newAuthority(t, "test")
	limit := tlsterm.NewLimit(0, 1)
	c := newClient(t, tlsterm.ClientConfig{CA: a.file, SNI: "a.test", Timeout: condition.Patience, Limit: limit})
	ctx, cancel := context.WithCancel(context.Background())
	raw, endpoint := sockets.TCPPair(t)
	ended := make(chan error, 1)
	go func() { _, err := c.Handshake(ctx, raw, tlsterm.Peer{}); ended <- err }()
	condition.Await(t, "one is under way", func() bool { return c.Stats().Counts().Active == 1 })
	addr, _ := origin(t, &tls.Config{Certificates: load(t, a.pair("a.test"))})
	_, err := reach(t, c, addr, tlsterm.Peer{})
	must(t, err)
	if n := limit.Handshakes(); n != 0 {
		t.Errorf("%d turns are taken", n)
	}
	_, err = endpoint.Write([]byte{22})
	must(t, err)
	_, err = reach(t, c, addr, tlsterm.Peer{})
	must(t, err)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}

	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	raw, endpoint = sockets.TCPPair(t)
	go func() { _, err := c.Handshake(ctx, newStuck(raw, 1), tlsterm.Peer{}); ended <- err }() // after its hello
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = tls.Server(endpoint, &tls.Config{Certificates: load(t, a.pair("a.test"))}).Handshake()
	}()
	condition.Await(t, "one has a turn", func() bool { return limit.Handshakes() == 1 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if n := limit.Handshakes(); n != 0 {
		t.Errorf("%d turns are taken in the end", n)
	}
	<-gone
}

// TestEndpointThatFindsNoTurn: a handshake with an endpoint that has answered, for which there is no turn until the end of
// its context, has failed for lack of turns and not because the endpoint was late.
func TestEndpointThatFindsNoTurn(t *testing.T) {
	t.Parallel()

	a := newAuthority(t, "test")
	cfg := &tls.Config{Certificates: load(t, a.pair("a.test"))}
	synctest.Test(t, func(t *testing.T) {
		limit := tlsterm.NewLimit(0, 1)
		c := newClient(t, tlsterm.ClientConfig{CA: a.file, SNI: "a.test", Limit: limit})
		begin := func(ctx context.Context, through func(net.Conn) net.Conn) <-chan error {
			raw, endpoint := net.Pipe()
			go func() { _ = tls.Server(endpoint, cfg).Handshake() }()
			ended := make(chan error, 1)
			go func() {
				_, err := c.Handshake(ctx, through(raw), tlsterm.Peer{})
				raw.Close()
				ended <- err
			}()
			synctest.Wait()
			return ended
		}
		whole, leave := context.WithCancel(context.Background())
		defer leave()
		holder := begin(whole, func(c net.Conn) net.Conn { return newStuck(c, 1) }) // after its hello
		if n := limit.Handshakes(); n != 1 {
			t.Fatalf("%d turns are taken", n)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := <-begin(ctx, func(c net.Conn) net.Conn { return c })
		var failed *tlsterm.Error
		if !errors.As(err, &failed) || failed.Kind != tlsterm.Busy || !errors.Is(err, syscall.EBUSY) {
			t.Errorf("got %v", err)
		}
		leave()
		<-holder
	})
}

// TestOwnCertificate: the proxy shows its own, and the one of now; protocols are those
// of the client.
func TestOwnCertificate(t *testing.T) {
	a, clients := newAuthority(t, "test"), newAuthority(t, "clients")
	addr, seen := origin(t, &tls.Config{
		Certificates: load(t, a.pair("a.test")), ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: clients.pool(), NextProtos: []string{"h2", "http/1.1"},
	})
	p := clients.pair("proxy.test")
	f := newFiles(t, &tlsterm.FilesConfig{Poll: time.Hour, Settle: 10 * time.Millisecond})
	c := newClient(t, tlsterm.ClientConfig{CA: a.file, SNI: "a.test", Pair: p, Files: f})
	shown := func() string {
		state, err := reach(t, c, addr, tlsterm.Peer{ALPN: []string{"http/1.1"}})
		must(t, err)
		if state.NegotiatedProtocol != "http/1.1" {
			t.Errorf("agreed upon %q", state.NegotiatedProtocol)
		}
		return (<-seen).PeerCertificates[0].SerialNumber.String()
	}
	if got, want := shown(), serialOf(t, p.Cert); got != want {
		t.Errorf("showed certificate %s, want %s", got, want)
	}
	if shown(); c.Stats().Counts().Resumed != 1 {
		t.Errorf("%d of two handshakes resumed, want the second", c.Stats().Counts().Resumed)
	}
	cert, key := clients.sign(newKey(t), "proxy.test")
	renamed(t, p.Cert, cert)
	renamed(t, p.Key, key)
	want := serialOf(t, p.Cert)
	condition.Await(t, "the new certificate is shown", func() bool { return shown() == want })
}

// TestAuthorityFile: the trusted authorities follow the file, also for sessions that
// could be resumed.
func TestAuthorityFile(t *testing.T) {
	a, other := newAuthority(t, "test"), newAuthority(t, "other")
	addr, _ := origin(t, &tls.Config{Certificates: load(t, a.pair("a.test"))})
	f := newFiles(t, &tlsterm.FilesConfig{Poll: time.Hour, Settle: 10 * time.Millisecond})
	c := newClient(t, tlsterm.ClientConfig{CA: a.file, SNI: "a.test", Files: f})
	for range 2 {
		_, err := reach(t, c, addr, tlsterm.Peer{})
		must(t, err)
	}
	if c.Stats().Counts().Resumed != 1 {
		t.Errorf("%d sessions resumed, want one", c.Stats().Counts().Resumed)
	}
	appendFile(t, a.file, other.file) // more are trusted, and nothing fails
	_, err := reach(t, c, addr, tlsterm.Peer{})
	must(t, err)
	must(t, copyFile(other.file, a.file))
	condition.Await(t, "the endpoint is not trusted any more", func() bool {
		_, err := reach(t, c, addr, tlsterm.Peer{})
		return err != nil
	})
}

func TestBadClientConfig(t *testing.T) {
	a := newAuthority(t, "test")
	p := a.pair("a.test")
	for _, test := range []struct {
		cfg  tlsterm.ClientConfig
		want string
	}{
		{tlsterm.ClientConfig{Pair: tlsterm.Pair{Cert: p.Cert}}, "set the certificate and its key"},
		{tlsterm.ClientConfig{CA: p.Key}, p.Key + " contains no certificate"},
		{tlsterm.ClientConfig{CA: "/none", Pair: tlsterm.Pair{Cert: "/nothing", Key: p.Key}}, "/none: no such file or directory\n/nothing: no such"},
	} {
		if _, err := tlsterm.NewClient(&test.cfg); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.cfg, err, test.want)
		}
	}
}

// A dated connection notes when it is to end.
type dated struct {
	net.Conn
	ends []time.Time
}

func (d *dated) SetDeadline(end time.Time) error {
	d.ends = append(d.ends, end)
	return d.Conn.SetDeadline(end)
}

// TestDeadlineOfTheContext: it holds in place of the client's own timeout, whichever is
// longer.
func TestDeadlineOfTheContext(t *testing.T) {
	a := newAuthority(t, "test")
	addr, _ := origin(t, &tls.Config{Certificates: load(t, a.pair("127.0.0.1"))})
	for _, timeout := range []time.Duration{time.Hour, 3 * time.Hour} {
		c := newClient(t, tlsterm.ClientConfig{CA: a.file, Timeout: timeout})
		raw, err := net.Dial("tcp", addr)
		must(t, err)
		defer raw.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Hour)
		defer cancel()
		conn := &dated{Conn: raw}
		_, err = c.Handshake(ctx, conn, tlsterm.Peer{Host: "127.0.0.1"})
		must(t, err)
		end, _ := ctx.Deadline()
		if len(conn.ends) != 2 || conn.ends[0].Sub(end).Abs() > time.Minute || !conn.ends[1].IsZero() {
			t.Errorf("with %v: it was to end at %v, want %v, and then never", timeout, conn.ends, end)
		}
	}
}

// TestEndpointsProtocol: an endpoint that speaks none of the offered protocols is told from one that refuses for another reason.
func TestEndpointsProtocol(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, "test")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		addr, _ := origin(t, &tls.Config{Certificates: load(t, a.pair("db.internal")), MaxVersion: version, NextProtos: []string{"http/1.1"}})
		c := newClient(t, tlsterm.ClientConfig{CA: a.file})
		_, err := reach(t, c, addr, tlsterm.Peer{Host: "db.internal", ALPN: []string{"h2"}})
		var failed *tlsterm.Error
		if !errors.As(err, &failed) || failed.Kind != tlsterm.Protocol {
			t.Errorf("got %v (%+v)", err, failed)
		}
	}
}
