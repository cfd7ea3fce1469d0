package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// ProbeConfig says what a [Probe] does: it connects; writes Preface; speaks TLS if that
// is set; then makes the HTTP request, or sends Send and waits for Expect. It is well
// if all of that that is asked for is done.
type ProbeConfig struct {
	// Address is host:port or unix:/path; Port replaces its port unless it is 0.
	Address string
	Port    int

	// Dial connects; nil means a net.Dialer without keepalive.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Preface returns what is sent first of all over a connection, before TLS: a PROXY
	// header. Nil: nothing is. It may be called by any goroutine.
	Preface func(conn net.Conn) []byte

	// TLS, if not nil, is how TLS is spoken. The server's certificate is verified as it
	// says: for a check that only asks whether TLS is spoken, set InsecureSkipVerify.
	TLS *tls.Config

	// HTTP, if not nil, is the request that is made.
	HTTP *HTTPProbe

	// Send is sent if there is no HTTP, and Expect is what the answer has to contain
	// within its first 16 KiB.
	Send, Expect []byte

	// End says that instead of all that the connection's end is passed on after the Preface,
	// and that the endpoint has to end it in turn, or to send something. A process that stands
	// still does neither, whatever it speaks.
	End bool
}

// HTTPProbe is a GET request and what is a good answer.
type HTTPProbe struct {
	Path   string // and query; "" means /
	Host   string // the Host header; "" means the address
	Status []int  // that are good; none means 200
	Body   []byte // what the body has to contain, within its first 64 KiB
}

// A Probe asks an endpoint over a connection of its own whether it is well.
type Probe struct {
	cfg              ProbeConfig
	network, address string
	request          []byte
}

// NewProbe returns a Probe, or what is wrong with its configuration. The configuration
// must not be changed afterwards.
func NewProbe(cfg *ProbeConfig) (*Probe, error) {
	p := &Probe{cfg: *cfg}
	if err := p.setAddress(); err != nil {
		return nil, err
	}
	if p.cfg.Dial == nil {
		p.cfg.Dial = (&net.Dialer{KeepAlive: -1}).DialContext
	}
	if cfg.HTTP == nil {
		return p, nil
	}
	if len(cfg.Send) > 0 || len(cfg.Expect) > 0 {
		return nil, errors.New("health: a check makes an HTTP request or sends bytes, not both")
	}
	if err := p.setRequest(cfg.HTTP); err != nil {
		return nil, err
	}
	return p, nil
}

// setAddress finds out where to connect to.
func (p *Probe) setAddress() error {
	if path, ok := strings.CutPrefix(p.cfg.Address, "unix:"); ok {
		if p.cfg.Port != 0 {
			return fmt.Errorf("health: %s has no port to be replaced by %d", p.cfg.Address, p.cfg.Port)
		}
		p.network, p.address = "unix", path
		return nil
	}
	host, port, err := net.SplitHostPort(p.cfg.Address)
	if err != nil {
		return fmt.Errorf("health: %q is neither host:port nor unix:/path", p.cfg.Address)
	}
	if p.cfg.Port != 0 {
		port = strconv.Itoa(p.cfg.Port)
	}
	p.network, p.address = "tcp", net.JoinHostPort(host, port)
	return nil
}

// Probe implements [Prober]. It leaves nothing behind.
func (p *Probe) Probe(ctx context.Context) error {
	conn, err := p.cfg.Dial(ctx, p.network, p.address)
	if err != nil {
		return fmt.Errorf("connect: %w", plain(err))
	}
	defer conn.Close()
	// The end of ctx ends every wait on the connection.
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end) // a connection that has none ends by what follows
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	return p.ask(ctx, conn)
}

// ask does what is to be done on a connection.
func (p *Probe) ask(ctx context.Context, conn net.Conn) error {
	if p.cfg.Preface != nil {
		if _, err := conn.Write(p.cfg.Preface(conn)); err != nil {
			return fmt.Errorf("send the preface: %w", plain(err))
		}
	}
	if p.cfg.End {
		return awaitEnd(conn)
	}
	if p.cfg.TLS != nil {
		secure := tls.Client(conn, p.cfg.TLS)
		if err := secure.HandshakeContext(ctx); err != nil {
			return fmt.Errorf("TLS handshake: %w", plain(err))
		}
		conn = secure
	}
	if p.request != nil {
		return p.get(conn)
	}
	return p.exchange(conn)
}

// plain takes from an error what the message says anyway: the operation and the
// address.
func plain(err error) error {
	var call *os.SyscallError
	var op *net.OpError
	switch {
	case errors.As(err, &call):
		return call.Err
	case errors.As(err, &op):
		return op.Err
	default:
		return err
	}
}
