package tlsterm

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// A ClientConfig says how connections to the endpoints of an upstream are encrypted.
type ClientConfig struct {
	// CA is a file of certificates. The endpoint's certificate must lead to one of them; empty: to one of the system's.
	CA string

	// SNI is the server name sent to the endpoint, and the name that its certificate must have; empty: the endpoint's own
	// host. If the host is an IP address, no name is sent, but the certificate must have the address.
	SNI string

	// Pair is the proxy's own certificate and key, which it shows if an endpoint asks; empty: none.
	Pair Pair

	// MinVersion is the oldest version of TLS that is spoken; 0: 1.2.
	MinVersion uint16

	// Timeout bounds a handshake if its context has no deadline of its own; 0: 10 s.
	Timeout time.Duration

	Files *Files // reads the files and follows them; nil: they are read once
	Limit *Limit // of handshakes; nil: none
	Stats *Stats // nil: the Client makes its own
}

// A Client does the TLS with the endpoints of an upstream. It is safe for concurrent use.
type Client struct {
	cfg ClientConfig
	follower
	config atomic.Pointer[tls.Config] // its contents are never changed
}

// sessions is how many TLS sessions with endpoints are kept for resumption.
const sessions = 1024

// NewClient reads the files and returns a Client. Close ends it.
func NewClient(cfg *ClientConfig) (*Client, error) {
	c := &Client{cfg: *cfg}
	if c.cfg.Timeout <= 0 {
		c.cfg.Timeout = DefaultTimeout
	}
	if c.cfg.MinVersion == 0 {
		c.cfg.MinVersion = tls.VersionTLS12
	}
	if c.cfg.Stats == nil {
		c.cfg.Stats = NewStats()
	}
	if (cfg.Pair.Cert == "") != (cfg.Pair.Key == "") {
		return nil, errors.New("TLS to endpoints: set the certificate and its key, or neither")
	}
	var pairs []Pair
	if cfg.Pair.Cert != "" {
		pairs = []Pair{cfg.Pair}
	}
	c.follower.files, c.follower.build = cfg.Files, c.build
	if err := c.follow(pairs, cfg.CA); err != nil {
		return nil, err
	}
	return c, nil
}

// build makes the configuration from the present files. A session is not resumed if other authorities have verified it,
// or if another certificate was shown in it. The caller holds c.mu.
func (c *Client) build() {
	config := &tls.Config{
		MinVersion:         c.cfg.MinVersion,
		ClientSessionCache: tls.NewLRUClientSessionCache(sessions),
	}
	if c.ca != nil {
		config.RootCAs = c.ca.value.Load().pool
	}
	for _, p := range c.pairs {
		config.Certificates = append(config.Certificates, *p.value.Load().cert)
	}
	c.config.Store(config)
}

// Certificate returns the certificate that an endpoint gets if it asks so. It is for GetClientCertificate of a [tls.Config].
func (c *Client) Certificate(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	for _, own := range c.config.Load().Certificates {
		if asked.SupportsCertificate(&own) == nil {
			return &own, nil
		}
	}
	return new(tls.Certificate), nil
}

// Stats returns the counters.
func (c *Client) Stats() *Stats { return c.cfg.Stats }

// A Peer is the endpoint of a handshake.
type Peer struct {
	Host string   // as configured: a name or an IP address, without the port
	ALPN []string // protocols to offer, such as the one agreed upon with the client; empty: none
}

// Handshake speaks TLS over a connection to an endpoint, and leaves no deadline on it. The caller has to close the
// connection, through the result if there is one. If ctx has ended, the connection is closed already. The error is an
// [*Error].
func (c *Client) Handshake(ctx context.Context, conn net.Conn, peer Peer) (*Conn, error) {
	config := c.config.Load().Clone()
	config.ServerName = c.cfg.SNI
	if config.ServerName == "" {
		config.ServerName = peer.Host
	}
	config.NextProtos = peer.ALPN
	endpoint, timeout := address(conn), c.cfg.Timeout
	if end, ok := ctx.Deadline(); ok {
		timeout = time.Until(end)
	}
	config.ClientSessionCache = sessionCache{config.ClientSessionCache, endpoint}
	answered := &limitedConn{Conn: conn, ctx: ctx, turn: newHandshakeSlot(c.cfg.Limit, timeout), left: maxFromEndpoint, after: maxFromEndpoint}
	a := attempt{
		raw: conn, conn: tls.Client(answered, config), peer: "with " + endpoint,
		heard: answered, turn: answered.turn, stats: c.cfg.Stats,
	}
	err := a.run(ctx)
	answered.over()
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: a.conn, beneath: answered}, nil
}

// A sessionCache keeps the sessions of endpoints with the same name apart.
type sessionCache struct {
	cache    tls.ClientSessionCache
	endpoint string
}

func (r sessionCache) Get(name string) (*tls.ClientSessionState, bool) {
	return r.cache.Get(r.endpoint + " " + name)
}

func (r sessionCache) Put(name string, s *tls.ClientSessionState) {
	r.cache.Put(r.endpoint+" "+name, s)
}
