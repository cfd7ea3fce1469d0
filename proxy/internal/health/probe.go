package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/sockopt"
)

// ProbeConfig configures a [Probe]. The probe connects, writes Preface, and speaks TLS if that
// is set. Then it makes the HTTP request, or sends Send and waits for Expect. The endpoint is
// well if all configured steps succeed.
type ProbeConfig struct {
	// Address is host:port or unix:/path; Port replaces its port unless it is 0.
	Address string
	Port    int

	// Source is the local address of its connections, if valid.
	Source netip.Addr

	// Preface returns the first bytes of a connection, before TLS: a PROXY header. Nil:
	// nothing is sent. It must be safe for concurrent use.
	Preface func(conn net.Conn) []byte

	// TLS, if not nil, is the TLS configuration. The server's certificate is verified
	// according to it. For a check of the handshake alone, set InsecureSkipVerify.
	TLS *tls.Config

	// StartTLS asks the endpoint for TLS by its own protocol, after the Preface; nil: TLS begins at once. It may wait as
	// long as the connection's deadline says.
	StartTLS func(conn net.Conn) error

	// HTTP, if not nil, is the request that is made.
	HTTP *HTTPProbe

	// Send is sent if there is no HTTP. The answer has to contain Expect within its first 16
	// KiB.
	Send, Expect []byte

	// Standby is contained in an answer other than the expected one, if it is that of a healthy standby: in the
	// answer to Send, or in the status line or the body of the answer to HTTP. Empty: there is no such answer.
	Standby []byte

	// End replaces all of that: after the Preface the probe half-closes the connection, and
	// the endpoint has to close it in turn, or to send something. A stopped process does
	// neither, whatever its protocol.
	End bool
}

// HTTPProbe is a GET request and the conditions of a good answer.
type HTTPProbe struct {
	Path   string // and query; "" means /
	Host   string // the Host header; "" means the address
	Status []int  // good ones; none means 200
	Body   []byte // the body has to contain it, within its first 64 KiB
}

// A Probe probes an endpoint over a connection of its own.
type Probe struct {
	cfg              ProbeConfig
	dialer           net.Dialer
	network, address string
	request          []byte
}

// NewProbe returns a Probe, or an error if its configuration is invalid. The configuration
// must not be changed afterwards.
func NewProbe(cfg *ProbeConfig) (*Probe, error) {
	p := &Probe{cfg: *cfg}
	if err := p.setAddress(); err != nil {
		return nil, err
	}
	p.dialer.KeepAlive = -1
	if cfg.Source.IsValid() {
		p.dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(cfg.Source, 0))
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

// setAddress sets the address to connect to.
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

// Probe implements [Prober]. It closes its connection.
func (p *Probe) Probe(ctx context.Context) error {
	conn, err := sockopt.Dial(ctx, &p.dialer, p.network, p.address)
	if err != nil {
		return connectFailed{fmt.Errorf("connect: %w", plain(err))}
	}
	defer conn.Close()
	// The end of ctx ends every wait on the connection.
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end) // a connection that has none ends by the code below
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	return p.ask(ctx, conn)
}

// A connectFailed is an error of connecting, and matches [ErrConnect].
type connectFailed struct{ error }

func (connectFailed) Is(target error) bool { return target == ErrConnect }

func (c connectFailed) Unwrap() error { return c.error }

// ask runs the steps after the connect.
func (p *Probe) ask(ctx context.Context, conn net.Conn) error {
	if p.cfg.Preface != nil {
		if _, err := conn.Write(p.cfg.Preface(conn)); err != nil {
			return fmt.Errorf("send the PROXY header: %w", plain(err))
		}
	}
	if p.cfg.End {
		return awaitEnd(conn)
	}
	if p.cfg.TLS != nil && p.cfg.StartTLS != nil {
		if err := p.cfg.StartTLS(conn); err != nil {
			return plain(err)
		}
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

// plain strips an error of the operation and the address, which the message contains anyway.
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
