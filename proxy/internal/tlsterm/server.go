// Package tlsterm ends a client's TLS connection in the proxy, and begins one to an endpoint.
//
// A [Server] does the TLS of one listener, a [Client] the TLS of one upstream. They follow changes of their files, if they
// are given [Files]: new handshakes use the new contents, handshakes in progress end with the contents with which they
// began, and connections notice nothing. A bad file changes nothing.
//
// The caller makes the parts that outlive a reload of the configuration, and hands them to the next Server: [Files],
// [Tickets], [Limit] and [Stats].
package tlsterm

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/internal/keypair"
	"github.com/penstock/penstock/proxy/internal/tally"
)

// A Pair names the files of a certificate (with its chain, in PEM) and its key. They
// may be the same file.
type Pair struct{ Cert, Key string }

// A Config says how a listener's clients are served.
type Config struct {
	// Name is the name of the listener. A session ticket is accepted only by a listener with the name under which it was
	// made.
	Name string

	// Certificates has at least one pair. A client gets the first certificate for the name that it wants. A certificate
	// with the name itself comes before a certificate with a wildcard, which stands for one label. If no certificate
	// has the name, or the client wants none, it gets the first certificate of all.
	Certificates []Pair

	// ClientCA is a file of certificates. If set, a client must show a certificate
	// issued by one of them.
	ClientCA string

	// MinVersion is the oldest version of TLS that is spoken; 0: 1.2. See
	// [ParseVersion].
	MinVersion uint16

	// ALPN lists the protocols that may be agreed upon, the preferred one first; empty: none. A client that offers only
	// other protocols is refused (RFC 7301, 3.2).
	ALPN []string

	// Timeout is how long a handshake may take, including the wait for its turn; 0: 10 s.
	Timeout time.Duration

	Files   *Files   // reads the files and follows them; nil: they are read once
	Tickets *Tickets // nil: the Server makes its own
	Limit   *Limit   // nil: none
	Stats   *Stats   // nil: the Server makes its own
}

// DefaultTimeout is how long a handshake may take if the configuration does not say.
const DefaultTimeout = 10 * time.Second

// A Server does the TLS of a listener. It is safe for concurrent use.
type Server struct {
	cfg Config
	follower
	state atomic.Pointer[state]
}

// A state is what handshakes use from now on. It is never changed, except for the keys of its tickets.
type state struct {
	config *tls.Config
	bind   []byte // what tickets are bound to, besides the name
	keys   atomic.Uint64
}

// NewServer reads the files and returns a Server. The errors of all files are joined; each begins with the name of its
// file. Close ends the Server.
func NewServer(cfg *Config) (*Server, error) {
	s := &Server{cfg: *cfg}
	if s.cfg.Timeout <= 0 {
		s.cfg.Timeout = DefaultTimeout
	}
	if s.cfg.MinVersion == 0 {
		s.cfg.MinVersion = tls.VersionTLS12
	}
	if s.cfg.Tickets == nil {
		s.cfg.Tickets = NewTickets(nil)
	}
	if s.cfg.Stats == nil {
		s.cfg.Stats = NewStats()
	}
	if len(cfg.Certificates) == 0 {
		return nil, errors.New("TLS needs a certificate")
	}
	s.follower.files, s.follower.build = cfg.Files, s.build
	if err := s.follow(cfg.Certificates, cfg.ClientCA); err != nil {
		return nil, err
	}
	return s, nil
}

// build makes the state from the present files. The caller holds s.mu.
func (s *Server) build() {
	certs := newIndex(s.pairs)
	st := &state{config: &tls.Config{
		MinVersion:     s.cfg.MinVersion,
		NextProtos:     s.cfg.ALPN,
		GetCertificate: certs.get,
	}}
	if s.cfg.MinVersion >= tls.VersionTLS12 {
		st.config.CipherSuites = keypair.CipherSuites() // older versions have only suites with CBC
	}
	if slices.Contains(s.cfg.ALPN, "h2") {
		st.config.GetConfigForClient = st.strict
	}
	if s.ca != nil {
		m := s.ca.value.Load()
		st.config.ClientAuth = tls.RequireAndVerifyClientCert
		st.config.ClientCAs = m.pool
		sum := sha256.Sum256(m.raw)
		st.bind = sum[:]
	}
	s.cfg.Tickets.refresh(s.cfg.Name, st)
	s.state.Store(st)
}

// strict is GetConfigForClient of a [tls.Config]. If h2 is spoken and http/1.1 is not, crypto/tls lets in a client that
// offers only http/1.1, without a protocol (negotiateALPN). strict gives this client a configuration without h2, and so the
// alert no_application_protocol.
func (st *state) strict(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	offered := hello.SupportedProtos
	if len(offered) == 0 || slices.ContainsFunc(st.config.NextProtos, func(p string) bool { return slices.Contains(offered, p) }) {
		return nil, nil
	}
	none := "none"
	for slices.Contains(offered, none) {
		none += "-"
	}
	config := st.config.Clone()
	config.NextProtos = []string{none}
	return config, nil
}

// Timeout returns how long a handshake may take.
func (s *Server) Timeout() time.Duration { return s.cfg.Timeout }

// Stats returns the counters.
func (s *Server) Stats() *Stats { return s.cfg.Stats }

// Handshake speaks TLS over a client's connection, and leaves no deadline on it. It waits for its turn, if there is a
// [Limit]. The caller has to close the connection, through the result if there is one. If ctx has ended, the connection is
// closed already. The error is an [*Error].
func (s *Server) Handshake(ctx context.Context, conn net.Conn) (*Conn, error) {
	st := s.state.Load()
	s.cfg.Tickets.refresh(s.cfg.Name, st)
	heard := &limitedConn{Conn: conn, ctx: ctx, turn: newHandshakeSlot(s.cfg.Limit, s.cfg.Timeout), left: maxHello, after: maxAfterHello}
	a := attempt{
		raw: conn, conn: tls.Server(heard, st.config), peer: "from " + address(conn),
		heard: heard, turn: heard.turn, stats: s.cfg.Stats,
	}
	err := a.run(ctx)
	heard.over()
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: a.conn, beneath: heard, by: st}, nil
}

func address(conn net.Conn) string {
	if a := conn.RemoteAddr(); a != nil && a.String() != "" {
		return a.String()
	}
	return "a unix socket"
}

// ParseVersion reads a version of TLS as it is written in a configuration.
func ParseVersion(s string) (uint16, error) {
	switch s {
	case "1.0":
		return tls.VersionTLS10, nil
	case "1.1":
		return tls.VersionTLS11, nil
	case "1.2":
		return tls.VersionTLS12, nil
	case "1.3":
		return tls.VersionTLS13, nil
	default:
		return 0, fmt.Errorf("%q is not a version of TLS: use 1.2 or 1.3 (or 1.0, 1.1)", s)
	}
}

var (
	errUncertified = errors.New("the handshake asked for no certificate, but a certificate is required now")
	errOutdated    = errors.New("its version of TLS is no longer accepted")
)

// Accepts returns an [*Error] if the Server's present rules on certificates and versions refuse a client after its
// handshake, which may have been with another Server. c is nil for a client that came without TLS. One goroutine at a time
// may call it for a connection.
func (s *Server) Accepts(c *Conn) error {
	st := s.state.Load()
	if c == nil {
		if st.config.ClientAuth == tls.RequireAndVerifyClientCert {
			return &Error{Kind: Uncertified, Peer: "from a client without TLS", Err: errUncertified}
		}
		return nil
	}
	if c.by == st {
		return nil
	}
	if kind, err := st.accepts(c.ConnectionState()); err != nil {
		return &Error{Kind: kind, Peer: "from " + address(c), Err: err}
	}
	c.by = st
	return nil
}

// accepts checks a handshake as crypto/tls checks the handshake of a client that shows its certificate
// (handshake_server.go, processCertsFromClient).
func (st *state) accepts(conn tls.ConnectionState) (FailureKind, error) {
	if conn.Version < st.config.MinVersion {
		return Version, errOutdated
	}
	if st.config.ClientAuth != tls.RequireAndVerifyClientCert {
		return Other, nil
	}
	if len(conn.PeerCertificates) == 0 {
		return Uncertified, errUncertified
	}
	opts := x509.VerifyOptions{
		Roots: st.config.ClientCAs, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, cert := range conn.PeerCertificates[1:] {
		opts.Intermediates.AddCert(cert)
	}
	_, err := conn.PeerCertificates[0].Verify(opts)
	return Uncertified, err
}

// A FailureKind is why a handshake failed.
type FailureKind uint8

const (
	Other       FailureKind = iota // none of the others
	Timeout                        // it was not done in time
	Busy                           // its turn did not come in time
	Closed                         // the peer or this side has closed or reset the connection
	NotTLS                         // the peer does not speak TLS
	Version                        // no version that both sides speak
	Cipher                         // no cipher suite, curve or signature that both sides know
	Protocol                       // no application protocol that both sides speak (ALPN)
	Uncertified                    // the peer showed no certificate, or none that is accepted
	Alert                          // the peer refused, usually because it does not trust the certificate
)

var kinds = [...]string{"other", "timeout", "busy", "closed", "not_tls", "version", "cipher", "protocol", "certificate", "alert"}

// String returns a word that can name a counter.
func (k FailureKind) String() string { return kinds[k] }

// kindOf sorts the errors of crypto/tls. Many of them have no type, only a text; a test provokes each of them.
func kindOf(err error) FailureKind {
	var header tls.RecordHeaderError
	var op *net.OpError
	var verify *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.Is(err, errBusy):
		return Busy
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.As(err, &header):
		return NotTLS
	case errors.As(err, &verify), errors.As(err, &authority):
		return Uncertified
	case errors.As(err, &op) && op.Op == "remote error":
		if strings.HasSuffix(op.Error(), "no application protocol") {
			return Protocol
		}
		return Alert
	case closed(err):
		return Closed
	default:
		return kindOfWords(err.Error())
	}
}

func closed(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, context.Canceled, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func kindOfWords(text string) FailureKind {
	for _, each := range []struct {
		words string
		kind  FailureKind
	}{
		{"unsupported versions", Version},
		{"unsupported protocol version", Version},
		{"protocol version", Version},
		{"unsupported application protocol", Protocol},
		{"application protocol", Protocol},
		{"didn't provide a certificate", Uncertified},
		{"certificate", Uncertified},
		{"cipher suite", Cipher},
		{"signature", Cipher},
		{"key exchange", Cipher},
		{"curve", Cipher},
	} {
		if strings.Contains(text, each.words) {
			return each.kind
		}
	}
	return Other
}

// Stats are the counters of handshakes.
type Stats struct {
	counts tally.HandshakeCounts // by atomic.AddInt64
	Failed *tally.Reasons        // by [Kind]
}

// NewStats returns counters at 0.
func NewStats() *Stats { return &Stats{Failed: tally.NewReasons(kinds[:]...)} }

// Counts returns the counts until now.
func (s *Stats) Counts() tally.HandshakeCounts { return tally.Load(&s.counts) }
