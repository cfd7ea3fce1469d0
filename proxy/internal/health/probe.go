package health

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/sockopt"
)

// ProbeConfig configures a [Probe]. The probe connects, writes Preface, and speaks TLS if it is set. Then it makes the HTTP
// request, or sends Send and waits for Expect. The endpoint is well if all configured steps succeed.
type ProbeConfig struct {
	// Address is host:port or unix:/path; Port replaces its port unless it is 0.
	Address string
	Port    int

	// Source is the local address of TCP connections, if valid.
	Source netip.Addr

	// Connect connects as [sockopt.Dial] does; nil: it is that.
	Connect func(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error)

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
	Send, Expect string

	// Standby is text in the answer of a healthy standby, if that is not the expected answer: in the answer to Send, or in
	// the status line or body of the answer to HTTP. Empty: no answer means standby.
	Standby string

	// End replaces all other steps after the Preface: the probe half-closes the connection, and the endpoint has to close
	// or reset it in turn, or to send something. A stopped process does none of this, whatever its protocol.
	End bool
}

// HTTPProbe is a GET request and the conditions of a good answer.
type HTTPProbe struct {
	Path   string // and query; "" means /
	Host   string // the Host header; "" means the address
	Status []int  // good ones; empty means 200
	Body   string // text that the body has to contain, within its first 64 KiB
}

// A Probe probes an endpoint over a connection of its own.
type Probe struct {
	cfg              ProbeConfig
	dialer           net.Dialer
	network, address string
	host             string // of the HTTP request
	status           []int  // good status codes
}

// NewProbe returns a Probe, or an error if its configuration is invalid. The configuration
// must not be changed afterwards.
func NewProbe(cfg *ProbeConfig) (*Probe, error) {
	p := &Probe{cfg: *cfg}
	if p.cfg.Connect == nil {
		p.cfg.Connect = sockopt.Dial
	}
	if err := p.setAddress(); err != nil {
		return nil, err
	}
	p.dialer.KeepAlive = -1
	if cfg.Source.IsValid() && p.network == "tcp" {
		p.dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(cfg.Source, 0))
	}
	if cfg.HTTP == nil {
		return p, nil
	}
	if cfg.Send != "" || cfg.Expect != "" {
		return nil, errors.New("health: a check either makes an HTTP request or sends bytes")
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
			return fmt.Errorf("health: %s has no port that %d could replace", p.cfg.Address, p.cfg.Port)
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
//
// A connection that is reset was made. Whether a Probe that waits for no answer sees the reset is chance, so such a Probe
// does not fail because of it: otherwise its next success would be mistaken for a recovery.
func (p *Probe) Probe(ctx context.Context) error {
	err := p.connect(ctx)
	if WasReset(err) && (p.cfg.End || p.cfg.TLS == nil && p.cfg.HTTP == nil && p.cfg.Expect == "") {
		return nil
	}
	return err
}

// WasReset reports whether err says that a connection was made, and then reset. If the reset comes before the first look at
// the connection, it is the error of the connect. A refused connect fails with ECONNREFUSED instead (net/ipv4/tcp_input.c,
// tcp_reset: EPIPE after an end of file).
func WasReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func (p *Probe) connect(ctx context.Context) error {
	conn, err := p.cfg.Connect(ctx, &p.dialer, p.network, p.address)
	if err != nil {
		if none, ok := errors.AsType[*net.AddrError](err); ok && p.dialer.LocalAddr != nil && none.Addr == p.dialer.LocalAddr.String() {
			is, to := "IPv6", "IPv4"
			if p.cfg.Source.Is4() {
				is, to = to, is
			}
			err = fmt.Errorf("source_address %v is %s, and cannot connect to an %s address", p.cfg.Source, is, to)
		}
		err = fmt.Errorf("connect: %w", plain(err))
		if WasReset(err) {
			return err
		}
		return connectFailed{err}
	}
	defer conn.Close()
	// The end of ctx ends every wait on the connection.
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end) // a connection without deadlines ends by the code below
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
	if p.cfg.HTTP != nil {
		return p.get(conn)
	}
	return p.exchange(conn)
}

// plain removes from an error the operation and the address, which the message has anyway.
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

// Limits of the part of an answer that is read.
const (
	answerMax = 16 << 10
	headerMax = 64 << 10
	bodyMax   = 64 << 10
)

// exchange sends, and waits for the expected answer.
func (p *Probe) exchange(conn net.Conn) error {
	// Piece by piece: all endpoints share the text.
	if _, err := io.CopyN(struct{ io.Writer }{conn}, strings.NewReader(p.cfg.Send), int64(len(p.cfg.Send))); err != nil {
		return fmt.Errorf("send: %w", plain(err))
	}
	if p.cfg.Expect == "" {
		return nil
	}
	return p.contains(conn, p.cfg.Expect, answerMax, "answer")
}

// A standby is the answer of a standby, and matches [ErrStandby].
type standby struct{ answer }

func (s standby) Is(target error) bool { return target == ErrStandby || s.answer.Is(target) }

// other returns the error for an answer that is not the expected one.
func (p *Probe) other(got []byte, err error) error {
	if p.isStandby(got) {
		return errStandby
	}
	return answer{err}
}

var errStandby error = standby{answer{errors.New("its check got the standby answer")}}

func (p *Probe) isStandby(got []byte) bool {
	return p.cfg.Standby != "" && strings.Contains(string(got), p.cfg.Standby)
}

// An answer is an error that is due to the endpoint's answer, and matches [ErrAnswer].
type answer struct{ error }

func (answer) Is(target error) bool { return target == ErrAnswer }

func (a answer) Unwrap() error { return a.error }

// awaitEnd half-closes a connection, and waits until the other side sends or closes.
func awaitEnd(conn net.Conn) error {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.New("the connection cannot be half-closed")
	}
	if err := half.CloseWrite(); err != nil && !errors.Is(err, syscall.ENOTCONN) { // ENOTCONN follows a reset
		return fmt.Errorf("end the connection: %w", plain(err))
	}
	if n, err := conn.Read(make([]byte, 1)); n == 0 && !errors.Is(err, io.EOF) {
		return fmt.Errorf("wait for its end: %w", plain(err))
	}
	return nil
}

// contains reads at most limit bytes, until they contain want, or the bytes of a standby. Its errors do not contain want,
// because it may be a secret, or the answer, because it may repeat want.
func (p *Probe) contains(r io.Reader, want string, limit int, what string) error {
	var got []byte
	buf := make([]byte, 1024)
	for len(got) < limit {
		n, err := r.Read(buf[:min(len(buf), limit-len(got))])
		from := max(len(got)-len(want)+1, 0)
		got = append(got, buf[:n]...)
		switch {
		case strings.Contains(string(got[from:]), want):
			return nil
		case p.isStandby(got):
			return errStandby
		case p.asksForPassword(got):
			return p.other(got, errPassword)
		case errors.Is(err, io.EOF):
			return p.lacking(what, got, "then the end")
		case len(got) > 0 && errors.Is(err, os.ErrDeadlineExceeded):
			return late{p.lacking(what, got, "then nothing")}
		case err != nil && len(got) > 0:
			return p.lacking(what, got, "then "+discreet(err).Error())
		case err != nil:
			return unread{what, discreet(err)}
		}
	}
	return p.lacking(what, got, "later bytes are not checked")
}

// lacking returns the error for an answer, if any came, without the expected text.
func (p *Probe) lacking(what string, got []byte, then string) error {
	unit := "bytes"
	if len(got) == 1 {
		unit = "byte"
	}
	err := fmt.Errorf("not the expected %s: %d %s, %s", what, len(got), unit, then)
	if len(got) == 0 {
		return err
	}
	return p.other(got, err)
}

// A late is an error of a probe whose deadline passed before the rest of the answer came.
type late struct{ error }

func (late) Is(target error) bool { return target == os.ErrDeadlineExceeded }

func (l late) Unwrap() error { return l.error }

var errPassword = errors.New("the server asks for a password")

// asksForPassword reports whether the probe sends a PostgreSQL startup message of version 3.0, and the answer begins with a
// request for a password: in clear text, by MD5 or by SASL.
func (p *Probe) asksForPassword(got []byte) bool {
	if len(p.cfg.Send) < 8 || p.cfg.Send[4:8] != "\x00\x03\x00\x00" || len(got) < 9 || got[0] != 'R' {
		return false
	}
	kind := binary.BigEndian.Uint32(got[5:9])
	return kind == 3 || kind == 5 || kind == 10
}

// discreet is plain for a read error. It leaves out what package net/http quotes of an answer that it cannot parse.
func discreet(err error) error {
	var call syscall.Errno
	var network net.Error
	if errors.As(err, &call) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return plain(err)
	}
	return errNotHTTP
}

var errNotHTTP error = answer{errors.New("the answer is not HTTP")}

// setRequest checks the request. It is built when it is sent: all endpoints share its texts.
func (p *Probe) setRequest(h *HTTPProbe) error {
	path, host := cmp.Or(h.Path, "/"), cmp.Or(h.Host, p.address)
	if h.Host == "" && p.network == "unix" {
		host = "localhost"
	}
	if p.status = h.Status; len(p.status) == 0 {
		p.status = []int{http.StatusOK}
	}
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " \r\n") {
		return fmt.Errorf("health: %q is not the path of a request: a path begins with / and has no spaces", h.Path)
	}
	if strings.ContainsAny(host, " \r\n/") {
		return fmt.Errorf("health: %q is not a host", h.Host)
	}
	p.host = host
	return nil
}

// get sends the request once. It does not follow redirects.
// An unread is the error of an answer that could not be read.
type unread struct {
	what  string
	cause error
}

func (e unread) Error() string { return "read the " + e.what + ": " + e.cause.Error() }

func (e unread) Unwrap() error { return e.cause }

func (p *Probe) get(conn net.Conn) error {
	request := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: penstock\r\nConnection: close\r\n\r\n", cmp.Or(p.cfg.HTTP.Path, "/"), p.host)
	if _, err := conn.Write(request); err != nil {
		return fmt.Errorf("send the request: %w", plain(err))
	}
	limited := &io.LimitedReader{R: conn, N: headerMax}
	response, err := readResponse(bufio.NewReader(limited))
	if err != nil {
		if limited.N <= 0 {
			return answer{fmt.Errorf("the answer's header is longer than %d bytes", headerMax)}
		}
		return unread{"answer", err}
	}
	// The body is not closed: closing would read it to its end, and the caller closes the connection.
	if !slices.Contains(p.status, response.StatusCode) {
		got := []byte(response.Status)
		limited.N = headerMax + bodyMax
		if p.cfg.Standby != "" && !p.isStandby(got) && p.contains(response.Body, p.cfg.Standby, bodyMax, "body") == nil {
			got = []byte(p.cfg.Standby)
		}
		if p.isStandby(got) {
			return fmt.Errorf("%w (status %d)", errStandby, response.StatusCode)
		}
		return answer{fmt.Errorf("status %d instead of %s", response.StatusCode, strings.Join(strings.Fields(strings.Trim(fmt.Sprint(p.status), "[]")), " or "))}
	}
	if p.cfg.HTTP.Body == "" {
		return nil
	}
	limited.N = headerMax + bodyMax // includes the framing of chunks
	if err := p.contains(response.Body, p.cfg.HTTP.Body, bodyMax, "body"); err != nil {
		if errors.Is(err, ErrStandby) {
			return fmt.Errorf("%w (status %d)", err, response.StatusCode)
		}
		return answer{fmt.Errorf("status %d, but %w", response.StatusCode, err)}
	}
	return nil
}

// readResponse reads an answer, and skips interim answers.
func readResponse(r *bufio.Reader) (*http.Response, error) {
	for {
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
				return nil, errors.New("the connection ended before it was complete")
			}
			return nil, discreet(err)
		}
		if response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols {
			return response, nil
		}
	}
}

// failure is the last reported failure, for log lines about its consequences.
type failure struct {
	outcome atomic.Uint32
	cause   atomic.Pointer[string] // of the last failed connect; nil: unknown
}

// SetCause sets the reason, in one line, for which connections to the endpoint fail, before a failure is reported; "" if it
// is unknown. It allocates only if the reason has changed.
func (m *OutlierMonitor) SetCause(cause string) { m.last.set(cause) }

// SetCause is like [OutlierMonitor.SetCause], for a connection that was let through.
func (b *Breaker) SetCause(cause string) { b.last.set(cause) }

func (f *failure) set(cause string) {
	if f.reason() != cause {
		kept := cause // without this copy each call would allocate
		f.cause.Store(&kept)
	}
}

// reason returns the reason, "" if none is known.
func (f *failure) reason() string {
	if c := f.cause.Load(); c != nil {
		return *c
	}
	return ""
}

func (f *failure) note(o Outcome) {
	if n := uint32(o); f.outcome.Load() != n {
		f.outcome.Store(n)
	}
}

// String returns the outcome and its cause.
func (f *failure) String() string {
	o := Outcome(f.outcome.Load())
	return o.String() + f.why(o)
}

// why returns the cause of a failed connect.
func (f *failure) why(o Outcome) string {
	if cause := f.reason(); o == ConnectFailed && cause != "" {
		return ": " + cause
	}
	return ""
}

// An Outcome is the result of a connection to an endpoint, as evidence about the endpoint.
type Outcome uint8

const (
	// Unknown: the client left first, or this process lacked a resource. This is no evidence about the endpoint.
	Unknown Outcome = iota
	// OK: the endpoint was reached and has sent its first byte, or an end of file after the
	// client's, or nothing more is expected of it.
	OK
	// ConnectFailed: the connect failed, or took too long.
	ConnectFailed
	// Reset: it was reached, and reset the connection before anything that the client sent
	// was passed on.
	Reset
	// Rejected: it was reached, and reset the connection before its own first byte, but after
	// something from the client; an end of file counts.
	Rejected
	// HungUp: it was reached, and ended the connection soon, before its own first byte and
	// before the client had ended it.
	HungUp
	// Silent: it was reached, and sent nothing for the time allowed.
	Silent
	// Lost: it was reached, and before its first byte TCP gave the connection up: nothing was acknowledged, or there was no
	// route any more.
	Lost

	outcomes // number of values
)

// after reports whether a connection with this outcome had reached the endpoint.
func (o Outcome) after() bool { return o != ConnectFailed }

// Failed reports whether the outcome counts as a failure of the endpoint.
func (o Outcome) Failed() bool { return o >= ConnectFailed && o < outcomes }

// mayBeClient reports whether the client may have caused the outcome: by garbage (which a firewall may drop), or by sending
// nothing at all.
func (o Outcome) mayBeClient() bool { return o >= Rejected }

// OutcomeNames describe the outcomes, in a few words.
var OutcomeNames = [outcomes]string{
	"unknown", "ok", "connect failed", "reset before its first byte", "reset before its first byte, after the client's first byte",
	"ended before its first byte", "silent after the connect", "connection lost before its first byte (TCP time-out, or no route)",
}

// String describes the outcome, in a few words.
func (o Outcome) String() string { return OutcomeNames[o] }
