// Package scrape serves the metrics at an address of their own, to scrapers over the network. It answers only GET
// /metrics, and only clients that may scrape, by their source and, if there is a token, by the token. An unknown source
// may not scrape.
//
// Nothing that a scraper does can last: a connection has one request, a time to send it, and a time to read the answer.
// With many scrapers, the rule of the admin API decides who is served.
package scrape

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/admission"
	"github.com/penstock/penstock/proxy/internal/keypair"
	"github.com/penstock/penstock/proxy/internal/listener"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/sockopt"
)

// maxConnections limits the concurrent connections of clients that may scrape. Connections of other clients are closed
// as soon as they are accepted.
const maxConnections = 64

// Timeouts of a scraper.
const (
	requestTime = 5 * time.Second  // for a TLS handshake and the request
	answerTime  = 15 * time.Second // afterwards, to make the answer and to read it
)

// Config is an address and the conditions of its clients.
type Config struct {
	Address sockopt.Address // a TCP address
	Allow   *source.Set
	// Token is what a scraper must send, or "".
	Token string
	// Cert and Key are the TLS files, or "" without TLS.
	Cert, Key string
}

// A Server serves metrics at one address or none, which may change. Create it with [New], make it listen with
// [Server.Prepare], and end it with [Server.Close].
type Server struct {
	*admission.Server
	metrics http.Handler
	log     *slog.Logger
	now     atomic.Pointer[conditions] // nil while it does not listen
}

// conditions are the conditions of a Config, ready for use.
type conditions struct {
	allow *source.Set
	token *[sha256.Size]byte // nil if no token is needed
	tls   *tls.Config        // nil without TLS
	pair  *keypair.Pair      // certificate of tls; nil without TLS
	local bool               // requests must be for an address of the loopback: other requests come from a page in a browser
}

// New returns a server that does not listen yet. log may be nil.
func New(metrics http.Handler, log *slog.Logger) *Server { return newServer(metrics, log, 1) }

// newServer is New with timeouts divided by part.
func newServer(metrics http.Handler, log *slog.Logger, part time.Duration) *Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{metrics: metrics, log: log}
	s.Server = admission.NewServer("metrics", maxConnections, log, &http.Server{
		Handler: http.HandlerFunc(s.respond), ReadHeaderTimeout: requestTime / part, ReadTimeout: requestTime / part, WriteTimeout: answerTime / part,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // about faults of clients
	}, s.take)
	return s
}

// A Move is a prepared change of a [Server]. Call either Commit or Abort, once.
type Move struct {
	*admission.Move
	server *Server
	now    *conditions
}

// Prepare opens an address, unless the server already listens there, and reads its files. A nil Config means no
// address. The error is one line.
func (s *Server) Prepare(ctx context.Context, cfg *Config) (*Move, error) {
	if cfg == nil {
		return &Move{s.PrepareNone(), s, nil}, nil
	}
	now := &conditions{allow: cfg.Allow, local: cfg.Cert == "" && sockopt.Loopback(cfg.Address.Name)}
	if cfg.Token != "" {
		sum := sha256.Sum256([]byte(cfg.Token))
		now.token = &sum
	}
	if cfg.Cert != "" {
		var former *keypair.Pair
		if before := s.now.Load(); before != nil {
			former = before.pair
		}
		pair, err := former.Next(cfg.Cert, cfg.Key, s.log)
		if err != nil {
			return nil, err
		}
		now.pair = pair
		now.tls = &tls.Config{GetCertificate: pair.Get, MinVersion: tls.VersionTLS12, CipherSuites: keypair.CipherSuites(), NextProtos: []string{"http/1.1"}}
	}
	move, err := s.Server.Prepare(ctx, cfg.Address, func() (*listener.Listener, error) {
		l, err := listener.Listen(ctx, cfg.Address, &listener.Config{Limit: s.Conns.Limit()})
		return l, listener.ExplainTaken(cfg.Address, err)
	})
	return &Move{move, s, now}, err
}

// Commit puts the change into force for scrapers that connect from now on.
func (m *Move) Commit() {
	m.server.now.Store(m.now)
	m.Move.Commit()
}

// take serves a connection of a client that may scrape.
func (s *Server) take(conn net.Conn, release func()) {
	now := s.now.Load()
	if now == nil || !now.allow.Contains(sourceOf(conn)) {
		conn.Close()
		release()
		return
	}
	s.Conns.Put(conn, now.tls, admission.Reads, nil, release)
}

func sourceOf(conn net.Conn) source.Source {
	at, _ := conn.RemoteAddr().(*net.TCPAddr)
	if at == nil {
		return source.Source{}
	}
	ip, ok := netip.AddrFromSlice(at.IP)
	if !ok {
		return source.Source{}
	}
	return source.TCP(netip.AddrPortFrom(ip.Unmap(), uint16(at.Port)))
}

func (s *Server) respond(w http.ResponseWriter, r *http.Request) {
	now := s.now.Load()
	switch {
	case now == nil || !now.known(r):
		admission.Of(r).Known(admission.Nobody)
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "a token is needed: Authorization: Bearer TOKEN", http.StatusUnauthorized)
	case now.local && r.Host != "" && !sockopt.Loopback(r.Host):
		admission.Of(r).Known(admission.Nobody)
		http.Error(w, fmt.Sprintf("host %q is neither a loopback address nor localhost: write http://%s", r.Host, s.Addr()), http.StatusForbidden)
	case r.URL.Path != "/metrics":
		http.NotFound(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "write GET /metrics", http.StatusMethodNotAllowed)
	default:
		if err := admission.Of(r).Begin(r.Context(), admission.Scrape); err != nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		s.metrics.ServeHTTP(w, r)
	}
}

// known reports whether a request has the token, if one is needed.
func (c *conditions) known(r *http.Request) bool {
	if c.token == nil {
		return true
	}
	given := r.Header.Values("Authorization")
	if len(given) != 1 {
		return false
	}
	kind, token, _ := strings.Cut(given[0], " ")
	sum := sha256.Sum256([]byte(token))
	return strings.EqualFold(kind, "Bearer") && subtle.ConstantTimeCompare(sum[:], c.token[:]) == 1
}

// Pair returns the certificate of the present address, or nil without one.
func (s *Server) Pair() *keypair.Pair {
	if now := s.now.Load(); now != nil {
		return now.pair
	}
	return nil
}
