package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/rollback"
	"github.com/penstock/penstock/proxy/sockopt"
)

// ErrNotRunning is wrapped by the errors of a [Client] if nothing listens at its address.
var ErrNotRunning = errors.New("nothing runs there")

// ErrSilent is wrapped by the errors of a [Client] if a request was not answered in time. The
// request may be performed all the same.
var ErrSilent = errors.New("no answer in time")

// ErrStranger is wrapped by the errors of a [Client] if a program other than penstock has answered.
var ErrStranger = errors.New("not penstock")

// Limits of a response. A status of 100,000 endpoints is smaller than maxAnswer, and all
// problems of a configuration are smaller than maxRefusal.
const (
	maxAnswer  = 64 << 20
	maxRefusal = 1 << 20
	maxList    = 1 << 30 // of two million sessions, at least
	maxHeaders = 64 << 10
)

// Timeouts of a response. quickAnswer bounds its start if nothing is read or opened for it.
// slowAnswer bounds its start if a configuration is read and brought into force. restAnswer
// bounds its remainder, for which a server gives a client 10 s.
const (
	quickAnswer = 5 * time.Second
	slowAnswer  = 5 * time.Minute
	restAnswer  = 15 * time.Second
	dialPause   = 5 * time.Millisecond // between attempts to connect to a full accept queue
	// maxCut is how often a request that only reads is made again, after pauses that grow, when its
	// connection was closed before the response.
	maxCut, cutPause = 6, 10 * time.Millisecond
)

// A Client is a client of the admin API. Its methods return an error of one line. If the
// server refuses a request, the error is a [*Refusal].
type Client struct {
	addr         sockopt.Address
	http         http.Client
	scheme, host string        // of requests
	token        string        // "": none
	quick        time.Duration // quickAnswer
	most         int64         // maxAnswer
}

// A Refusal is an error response of the server.
type Refusal struct {
	Code    int    // the HTTP status
	Line    string // the error
	Details string // more lines, may be empty
}

// Error returns the error line of the server.
func (r *Refusal) Error() string { return r.Line }

// NewClient returns a client for the server at an address, as [ParseAddress] takes it, that shows no
// credentials.
func NewClient(bind string) (*Client, error) { return NewClientAs(bind, new(Credentials)) }

// NewClientAs is [NewClient] with credentials. Their files are read once. The error may wrap
// [ErrCredentials].
func NewClientAs(bind string, as *Credentials) (*Client, error) {
	addr, err := ParseAddress(bind)
	if err == nil {
		err = as.check(addr)
	}
	if err != nil {
		return nil, err
	}
	addr.Mode = 0 // only listeners use it
	c := &Client{addr: addr, host: "localhost", scheme: "http", quick: quickAnswer, most: maxAnswer}
	if addr.Network != "unix" {
		c.token = as.Token
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		for {
			conn, err := sockopt.Dial(ctx, new(net.Dialer), addr.Network, addr.Name)
			if err == nil {
				if err = as.verify(conn); err != nil {
					conn.Close()
				}
			}
			if !errors.Is(err, syscall.EAGAIN) { // the accept queue of a unix socket is full (connect(2))
				return conn, err
			}
			select {
			case <-time.After(dialPause):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeaders}
	if addr.Network != "unix" && as.secured() {
		c.scheme = "https"
		if c.host, _, err = net.SplitHostPort(addr.Name); err != nil {
			return nil, err
		}
		if transport.TLSClientConfig, err = as.config(c.host); err != nil {
			return nil, err
		}
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = http.Client{Transport: transport, CheckRedirect: stay}
	return c, nil
}

// beginsWithin returns how long the response to a request may take to begin.
func (c *Client) beginsWithin(path string, q url.Values) time.Duration {
	switch path {
	case "/v1/profile":
		seconds, _ := strconv.Atoi(q.Get("seconds"))
		return time.Duration(seconds)*time.Second + c.quick
	case "/v1/why":
		window, _ := time.ParseDuration(q.Get("for"))
		return window + c.quick
	case "/v1/sessions/end", "/v1/deny/add":
		return EndWait + c.quick
	case "/v1/plan", "/v1/reload", "/v1/confirm", "/v1/rollback", "/v1/lane/return":
		return slowAnswer
	}
	return c.quick
}

// Status returns the current status.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.do(ctx, http.MethodGet, "/v1/status", nil, &s)
}

// Generations returns the generations that are kept.
func (c *Client) Generations(ctx context.Context) (s rollback.Status, err error) {
	return s, c.do(ctx, http.MethodGet, "/v1/generations", nil, &s)
}

// Plan returns the changes that a reload from a file would make; "" is the file in force.
func (c *Client) Plan(ctx context.Context, path string) (p Plan, err error) {
	q := url.Values{}
	if path != "" {
		q.Set("config", path)
	}
	return p, c.do(ctx, http.MethodPost, "/v1/plan", q, &p)
}

// Reload reloads the configuration; o.By is not sent.
func (c *Client) Reload(ctx context.Context, o rollback.Options) (r Reloaded, err error) {
	q := url.Values{}
	if o.Confirm != 0 {
		q.Set("confirm", o.Confirm.String())
	}
	if o.RollbackIf != "" {
		q.Set("rollback_if", o.RollbackIf)
	}
	return r, c.do(ctx, http.MethodPost, "/v1/reload", q, &r)
}

// Confirm confirms the pending reload if it is the generation of that number; 0 is any.
func (c *Client) Confirm(ctx context.Context, number int) (s Outcome, err error) {
	q := url.Values{}
	if number != 0 {
		q.Set("generation", fmt.Sprint(number))
	}
	return s, c.do(ctx, http.MethodPost, "/v1/confirm", q, &s)
}

// Rollback returns to the generation of a number; 0 is the one before.
func (c *Client) Rollback(ctx context.Context, to int) (s RolledBack, err error) {
	q := url.Values{}
	if to != 0 {
		q.Set("to", strconv.Itoa(to))
	}
	return s, c.do(ctx, http.MethodPost, "/v1/rollback", q, &s)
}

// Drain makes the process drain and end.
func (c *Client) Drain(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/v1/process/drain", nil, nil)
}

// DrainListener calls [Balancer].DrainListener.
func (c *Client) DrainListener(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, "/v1/listener/drain", url.Values{"listener": {name}}, nil)
}

// DrainEndpoint drains an endpoint, or takes that back.
func (c *Client) DrainEndpoint(ctx context.Context, upstream, endpoint string, drain bool) error {
	path := "/v1/endpoint/ready"
	if drain {
		path = "/v1/endpoint/drain"
	}
	return c.do(ctx, http.MethodPost, path, url.Values{"upstream": {upstream}, "endpoint": {endpoint}}, nil)
}

// SetWeight changes the weight of an endpoint.
func (c *Client) SetWeight(ctx context.Context, upstream, endpoint string, weight int) error {
	q := url.Values{"upstream": {upstream}, "endpoint": {endpoint}, "weight": {fmt.Sprint(weight)}}
	return c.do(ctx, http.MethodPost, "/v1/endpoint/weight", q, nil)
}

// SetSplit calls [Balancer].SetSplit.
func (c *Client) SetSplit(ctx context.Context, listener string, route int, percent map[string]float64) error {
	q := url.Values{"listener": {listener}, "route": {fmt.Sprint(route)}}
	for name, p := range percent {
		q.Add("percent", fmt.Sprintf("%s:%v", name, p))
	}
	return c.do(ctx, http.MethodPost, "/v1/split/set", q, nil)
}

// do makes a request, and reads the response into v unless that is nil. Whatever program
// listens there, do ends in time, reads a bounded response, and follows no redirect.
func (c *Client) do(ctx context.Context, method, path string, q url.Values, v any) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	within := func(d time.Duration) *time.Timer {
		return time.AfterFunc(d, func() { cancel(fmt.Errorf("%w (%v)", ErrSilent, d)) })
	}
	late := within(c.beginsWithin(path, q))
	defer func() { late.Stop() }()
	u := url.URL{Scheme: c.scheme, Host: c.host, Path: path, RawQuery: q.Encode()}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return err
	}
	r.Header.Set(Header, "1")
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.request(r)
	if err != nil {
		return c.explain(ctx, err)
	}
	defer answer.Body.Close()
	late.Stop()
	late = within(restAnswer)
	most := c.most
	if path == "/v1/sessions" && most == maxAnswer {
		most = maxList
	}
	if answer.StatusCode != http.StatusOK {
		most = maxRefusal
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	switch {
	case err != nil:
		return c.explain(ctx, err)
	case answer.Header.Get(Header) == "" && answer.StatusCode == http.StatusBadRequest && bytes.Contains(body, []byte("to an HTTPS server")): // net/http
		return fmt.Errorf("%s: it answers by TLS alone: write --ca FILE, or --ca %s", c.addr, SystemCA)
	case answer.Header.Get(Header) == "":
		return fmt.Errorf("%s: %w: its answer (%s) has no header %s: another program listens there", c.addr, ErrStranger, answer.Status, Header)
	case answer.StatusCode/100 == 3:
		return fmt.Errorf("%s: unexpected redirect (%s): this is not a Penstock API, another program listens there", c.addr, answer.Status)
	case int64(len(body)) > most:
		return fmt.Errorf("%s: its answer is longer than %d bytes", c.addr, most)
	case answer.StatusCode != http.StatusOK:
		return refusal(answer.StatusCode, body)
	case v == nil:
		return nil
	}
	if raw, ok := v.(*[]byte); ok {
		*raw = body
		return nil
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%s: its answer is not understood: %w", c.addr, err)
	}
	if name := missing(path, body); name != "" {
		return fmt.Errorf("%s: %w: its answer has no %s: another program listens there", c.addr, ErrStranger, name)
	}
	return nil
}

// request makes a request. A server all of whose places are taken closes the connections that have waited
// longest, so a request that only reads is made again.
func (c *Client) request(r *http.Request) (*http.Response, error) {
	for n := 0; ; n++ {
		answer, err := c.http.Do(r)
		if err == nil || n == maxCut || r.Method != http.MethodGet || !cut(err) {
			return answer, err
		}
		select {
		case <-time.After(cutPause << n):
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		}
	}
}

// cut reports whether the server has closed the connection before the response.
func cut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// refusal makes an error of a response.
func refusal(code int, body []byte) error {
	var f failure
	if json.Unmarshal(body, &f) != nil || f.Error == "" {
		line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
		f.Error = fmt.Sprintf("%s: %q", http.StatusText(code), line[:min(len(line), 200)])
	}
	return &Refusal{Code: code, Line: inCommandTerms(f.Error), Details: f.Details}
}

// explain makes an error of a request without a response.
func (c *Client) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrSilent) {
		return fmt.Errorf("%s: %w: the process that listens there hangs, or is another program", c.addr, cause)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		err = op.Err
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", c.addr, ErrNotRunning)
	}
	if cut(err) {
		return fmt.Errorf("%s: the connection was closed before the answer (%w): too many clients ask there at once, the process ends, or it is another program", c.addr, err)
	}
	return fmt.Errorf("%s: %w", c.addr, err)
}
