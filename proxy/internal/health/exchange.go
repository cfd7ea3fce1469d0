package health

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
)

// Limits of the part of an answer that is read.
const (
	answerMax = 16 << 10
	headerMax = 64 << 10
	bodyMax   = 64 << 10
)

// exchange sends, and waits for the expected answer.
func (p *Probe) exchange(conn net.Conn) error {
	if len(p.cfg.Send) > 0 {
		if _, err := conn.Write(p.cfg.Send); err != nil {
			return fmt.Errorf("send: %w", plain(err))
		}
	}
	if len(p.cfg.Expect) == 0 {
		return nil
	}
	return p.contains(conn, p.cfg.Expect, answerMax, "the answer")
}

// A standby is an answer that is the one of a standby, and matches [ErrStandby].
type standby struct{ answer }

func (s standby) Is(target error) bool { return target == ErrStandby || s.answer.Is(target) }

// other returns the error for an answer that is not the expected one.
func (p *Probe) other(got []byte, err error) error {
	if p.isStandby(got) {
		return standby{answer{err}}
	}
	return answer{err}
}

func (p *Probe) isStandby(got []byte) bool {
	return len(p.cfg.Standby) > 0 && bytes.Contains(got, p.cfg.Standby)
}

// An answer is an error that is due to the endpoint's answer, and matches [ErrAnswer].
type answer struct{ error }

func (answer) Is(target error) bool { return target == ErrAnswer }

func (a answer) Unwrap() error { return a.error }

// awaitEnd half-closes a connection, and waits until the other side sends or closes. A reset
// counts, too.
func awaitEnd(conn net.Conn) error {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.New("a connection that cannot be ended one way")
	}
	if err := half.CloseWrite(); err != nil && !errors.Is(err, syscall.ENOTCONN) { // ENOTCONN follows a reset
		return fmt.Errorf("end the connection: %w", plain(err))
	}
	if n, err := conn.Read(make([]byte, 1)); n == 0 && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("wait for its end: %w", plain(err))
	}
	return nil
}

// contains reads at most limit bytes, until they contain want, or the bytes of a standby. Its errors contain neither
// want, which may be a secret, nor the answer, which may repeat it.
func (p *Probe) contains(r io.Reader, want []byte, limit int, what string) error {
	var got []byte
	buf := make([]byte, 1024)
	for len(got) < limit {
		n, err := r.Read(buf[:min(len(buf), limit-len(got))])
		from := max(len(got)-len(want)+1, 0)
		got = append(got, buf[:n]...)
		switch {
		case bytes.Contains(got[from:], want):
			return nil
		case p.isStandby(got):
			return p.lacking(what, got, "a standby's among them")
		case errors.Is(err, io.EOF):
			return p.lacking(what, got, "then it ended")
		case err != nil && len(got) > 0:
			return p.other(got, fmt.Errorf("%w: %w", p.lacking(what, got, "then nothing more"), discreet(err)))
		case err != nil:
			return fmt.Errorf("read %s: %w", what, discreet(err))
		}
	}
	return p.lacking(what, got, "more is not looked at")
}

// lacking returns the error for an answer, if any came, without the expected text.
func (p *Probe) lacking(what string, got []byte, then string) error {
	unit := "bytes"
	if len(got) == 1 {
		unit = "byte"
	}
	err := fmt.Errorf("%s lacks the expected bytes: %d %s came, %s", what, len(got), unit, then)
	if len(got) == 0 {
		return err
	}
	return p.other(got, err)
}

// discreet is plain for a read error, without the quotes that package net/http makes of an
// answer that it cannot parse.
func discreet(err error) error {
	var call syscall.Errno
	var network net.Error
	if errors.As(err, &call) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return plain(err)
	}
	return errNotHTTP
}

var errNotHTTP error = answer{errors.New("the answer is not HTTP")}

// setRequest builds the request.
func (p *Probe) setRequest(h *HTTPProbe) error {
	path, host := h.Path, h.Host
	if path == "" {
		path = "/"
	}
	if host == "" {
		host = p.address
		if p.network == "unix" {
			host = "localhost"
		}
	}
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " \r\n") {
		return fmt.Errorf("health: %q is no path of a request: it begins with / and has no spaces", h.Path)
	}
	if strings.ContainsAny(host, " \r\n/") {
		return fmt.Errorf("health: %q is no host", h.Host)
	}
	p.request = fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: penstock\r\nConnection: close\r\n\r\n", path, host)
	return nil
}

// get sends the request once, and does not follow redirects.
func (p *Probe) get(conn net.Conn) error {
	if _, err := conn.Write(p.request); err != nil {
		return fmt.Errorf("send the request: %w", plain(err))
	}
	limited := &io.LimitedReader{R: conn, N: headerMax}
	response, err := readResponse(bufio.NewReader(limited))
	if err != nil {
		if limited.N <= 0 {
			return answer{fmt.Errorf("the answer's header is longer than %d bytes", headerMax)}
		}
		return fmt.Errorf("read the answer: %w", err)
	}
	// The body is not closed: that would read it to its end, and the connection is closed by the caller.
	if !p.cfg.HTTP.good(response.StatusCode) {
		got := []byte(response.Status)
		limited.N = headerMax + bodyMax
		if len(p.cfg.Standby) > 0 && !p.isStandby(got) && p.contains(response.Body, p.cfg.Standby, bodyMax, "the body") == nil {
			got = p.cfg.Standby
		}
		return p.other(got, fmt.Errorf("status %d instead of %s", response.StatusCode, p.cfg.HTTP.wanted()))
	}
	if len(p.cfg.HTTP.Body) == 0 {
		return nil
	}
	limited.N = headerMax + bodyMax // the framing of chunks included
	if err := p.contains(response.Body, p.cfg.HTTP.Body, bodyMax, "the body"); err != nil {
		err = fmt.Errorf("status %d, but %w", response.StatusCode, err)
		if errors.Is(err, ErrStandby) {
			return err
		}
		return answer{err}
	}
	return nil
}

// readResponse reads an answer, and skips interim ones.
func readResponse(r *bufio.Reader) (*http.Response, error) {
	for {
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
				return nil, errors.New("the connection ended before it was there")
			}
			return nil, discreet(err)
		}
		if response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols {
			return response, nil
		}
	}
}

func (h *HTTPProbe) good(status int) bool {
	if len(h.Status) == 0 {
		return status == http.StatusOK
	}
	return slices.Contains(h.Status, status)
}

// wanted returns the good statuses as text.
func (h *HTTPProbe) wanted() string {
	if len(h.Status) == 0 {
		return "200"
	}
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(h.Status), "[]")), " or ")
}
