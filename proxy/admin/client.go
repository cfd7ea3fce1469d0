package admin

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/rollback"
	"github.com/penstock/penstock/proxy/sockopt"
)

// ErrNotRunning is wrapped by the errors of a [Client] if nothing listens at its address.
var ErrNotRunning = errors.New("no process runs there")

// ErrSilent is wrapped by the errors of a [Client] if a request was not answered in time. The process may still perform
// the request.
var ErrSilent = errors.New("no answer in time")

// ErrStranger is wrapped by the errors of a [Client] if a program other than penstock has answered.
var ErrStranger = errors.New("not penstock")

// Limits of a response. A status with 100,000 endpoints is smaller than maxAnswer, and all problems of a configuration
// together are smaller than maxRefusal.
const (
	maxAnswer  = 64 << 20
	maxRefusal = 1 << 20
	maxSession = 64 << 10
	maxList    = 2 << 20 // sessions
	maxHeaders = 64 << 10
)

// Timeouts of a response. quickAnswer limits the wait for its start if the process need not read or open anything,
// slowAnswer if the process reads a configuration and puts it into force. restAnswer limits the rest of the response,
// for which a server gives a client 10 s.
const (
	quickAnswer = 5 * time.Second
	slowAnswer  = 5 * time.Minute
	restAnswer  = 15 * time.Second
	// maxCut is how often a request that only reads is repeated, after growing pauses, when its connection was closed
	// before the response.
	maxCut, cutPause = 6, 10 * time.Millisecond
)

// A Client is a client of the admin API. Its methods return errors of one line. If the server refuses a request, the
// error is a [*Refusal].
type Client struct {
	addr         sockopt.Address
	peer         atomic.Int32 // see Peer
	http         http.Client
	scheme, host string        // for requests
	token        string        // "" without a token
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

// NewClient returns a client without credentials for the server at an address, see [ParseAddress].
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
		conn, err := sockopt.Dial(ctx, new(net.Dialer), addr.Network, addr.Name)
		if err == nil {
			u := userOf(conn)
			c.peer.Store(u.pid)
			if err = as.verify(conn, u); err != nil {
				conn.Close()
			}
		}
		return conn, err
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

// beginsWithin returns how long the process may take before its response begins.
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

// pairs are the parameters of a query, names and values in turn.
func pairs(query any) (list []any) {
	inQuery(query, func(name string, field reflect.Value) { list = append(list, name, field.Interface()) })
	return list
}

// given returns the nonzero parameters of pairs, which holds names and values in turn.
func given(pairs ...any) url.Values {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if !reflect.ValueOf(pairs[i+1]).IsZero() {
			values.Set(pairs[i].(string), fmt.Sprint(pairs[i+1]))
		}
	}
	return values
}

// get makes a request that only reads, with the nonzero parameters of pairs, and returns the answer.
func get[T any](ctx context.Context, c *Client, path string, pairs ...any) (answer T, err error) {
	return answer, c.do(ctx, http.MethodGet, path, given(pairs...), &answer)
}

// post is get for a request that changes something, or opens files.
func post[T any](ctx context.Context, c *Client, path string, pairs ...any) (answer T, err error) {
	return answer, c.do(ctx, http.MethodPost, path, given(pairs...), &answer)
}

// Peer returns the process that listens at the unix socket, as the last connection found it. It is 0 over TCP, and for a
// process that is not visible in this process's PID namespace.
func (c *Client) Peer() int { return int(c.peer.Load()) }

// Status returns the current status.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return get[Status](ctx, c, "/v1/status")
}

// Generations returns the kept generations.
func (c *Client) Generations(ctx context.Context) (rollback.Status, error) {
	return get[rollback.Status](ctx, c, "/v1/generations")
}

// Plan returns the changes that a reload from a file would make. "" is the file in force.
func (c *Client) Plan(ctx context.Context, path string) (Plan, error) {
	return post[Plan](ctx, c, "/v1/plan", "config", path)
}

// Reload reloads the configuration. o.By is not sent.
func (c *Client) Reload(ctx context.Context, o rollback.Options) (Reloaded, error) {
	return post[Reloaded](ctx, c, "/v1/reload", "confirm", o.Confirm, "rollback_if", o.RollbackIf)
}

// Confirm confirms the pending reload if it has this generation number. 0 confirms any.
func (c *Client) Confirm(ctx context.Context, number int) (Outcome, error) {
	return post[Outcome](ctx, c, "/v1/confirm", "generation", number)
}

// Rollback returns to the generation with this number. 0 is the previous generation.
func (c *Client) Rollback(ctx context.Context, to int) (RolledBack, error) {
	return post[RolledBack](ctx, c, "/v1/rollback", "to", to)
}

// Drain makes the process drain and end.
func (c *Client) Drain(ctx context.Context) error {
	_, err := post[empty](ctx, c, "/v1/process/drain")
	return err
}

// DrainListener calls [Balancer].DrainListener.
func (c *Client) DrainListener(ctx context.Context, name string) (ListenerDrained, error) {
	return post[ListenerDrained](ctx, c, "/v1/listener/drain", "listener", name)
}

// ReadyListener calls [Balancer].ReadyListener.
func (c *Client) ReadyListener(ctx context.Context, name string) (Changed, error) {
	return post[Changed](ctx, c, "/v1/listener/ready", "listener", name)
}

// SetSplit calls [Balancer].SetSplit.
func (c *Client) SetSplit(ctx context.Context, listener string, route int, percent map[string]float64) (done Changed, err error) {
	q := given("listener", listener, "route", fmt.Sprint(route))
	for name, p := range percent {
		q.Add("percent", fmt.Sprintf("%s:%v", name, p))
	}
	return done, c.do(ctx, http.MethodPost, "/v1/split/set", q, &done)
}

// do makes a request, and reads the response into v unless v is nil. Whatever program listens at the address, do ends
// in time, reads a bounded response, and follows no redirect.
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
	if list, ok := v.(*Sessions); ok && answer.StatusCode == http.StatusOK && answer.Header.Get(Header) != "" {
		if err := list.read(answer.Body); err != nil {
			return c.explain(ctx, fmt.Errorf("the answer cannot be decoded: %w", err))
		}
		return nil
	}
	most := c.most
	if answer.StatusCode != http.StatusOK {
		most = maxRefusal
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	switch {
	case err != nil:
		return c.explain(ctx, err)
	case answer.Header.Get(Header) == "" && answer.StatusCode == http.StatusBadRequest && bytes.Contains(body, []byte("to an HTTPS server")): // net/http
		return fmt.Errorf("%s: the process answers only over TLS: write --ca FILE, or --ca %s", c.addr, SystemCA)
	case answer.Header.Get(Header) == "":
		return fmt.Errorf("%s: %w: its answer (%s) has no header %s: another program listens there", c.addr, ErrStranger, answer.Status, Header)
	case answer.StatusCode/100 == 3:
		return fmt.Errorf("%s: unexpected redirect (%s): this is not a Penstock API, another program listens there", c.addr, answer.Status)
	case int64(len(body)) > most:
		return fmt.Errorf("%s: the answer is longer than %d bytes", c.addr, most)
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
		return fmt.Errorf("%s: the answer cannot be decoded: %w", c.addr, err)
	}
	if name := missing(path, body); name != "" {
		return fmt.Errorf("%s: %w: its answer has no %s: another program listens there", c.addr, ErrStranger, name)
	}
	return nil
}

// request makes a request. A full server closes the connections that have waited longest, so a request that only reads
// is repeated.
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

func refusal(code int, body []byte) error {
	var f failure
	if json.Unmarshal(body, &f) != nil || f.Error == "" {
		line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
		f.Error = fmt.Sprintf("%s: %q", http.StatusText(code), line[:min(len(line), 200)])
	}
	return &Refusal{Code: code, Line: inCommandTerms(f.Error), Details: f.Details}
}

func (c *Client) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrSilent) {
		return fmt.Errorf("%s: %w: the process that listens there does not respond, or is another program", c.addr, cause)
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
		return fmt.Errorf("%s: the connection was closed before the answer (%w): the process has too many admin requests at once, is ending, or is another program", c.addr, err)
	}
	return fmt.Errorf("%s: %w", c.addr, err)
}

// Credentials identify a [Client] over TCP. The zero Credentials are none, and mean no TLS.
type Credentials struct {
	// Token is sent to the server (Authorization: Bearer). "" sends none.
	Token string
	// CA is the file of the authorities for the server's certificate, or [SystemCA]. With "" there is no TLS, unless
	// Own is set.
	CA string
	// Cert and Key are the files of the client certificate. "" shows none.
	Cert, Key string
	// Own is the file of the server's own certificate. The client accepts exactly this certificate, whatever its name.
	// A client that has its key may read and change.
	Own string
	// Known refuses the server at a unix socket unless its process belongs to root, to the user of this process, or to
	// Owner. It is set if the user has not named the socket.
	Known bool
	// Owner is the user to whom root has given the socket's directory, or 0.
	Owner uint32
}

// verify returns an error if u, the server's user at a unix socket, is the wrong one.
func (c *Credentials) verify(conn net.Conn, u user) error {
	if !c.Known || conn.RemoteAddr().Network() != "unix" {
		return nil
	}
	if u.trusted() || u.mayRead(int(c.Owner), wholeNamespace("uid")) {
		return nil
	}
	return fmt.Errorf("%w: a process of another user (%s) listens there: write --admin ADDRESS if you trust it", ErrStranger, u)
}

// SystemCA stands for the system's authorities.
const SystemCA = "system"

// ErrCredentials is wrapped by the error of credentials that cannot be used at an address.
var ErrCredentials = errors.New("invalid credentials")

// secured reports whether the client uses TLS.
func (c *Credentials) secured() bool { return c.CA != "" || c.Own != "" }

// check returns an error if the credentials cannot be used at an address.
func (c *Credentials) check(addr sockopt.Address) error {
	switch {
	case addr.Network == "unix":
		return nil
	case !c.secured() && c.Cert != "":
		return fmt.Errorf("%w: %s: a client certificate needs TLS: write --ca FILE, or --ca %s", ErrCredentials, addr, SystemCA)
	case !c.secured() && addr.Private() != nil:
		return fmt.Errorf("%w: %s is another machine, and without TLS others on the network could read and change the requests: write --ca FILE, or --ca %s", ErrCredentials, addr, SystemCA)
	case strings.ContainsAny(c.Token, "\r\n"):
		return fmt.Errorf("%w: the token has several lines: write it in one line", ErrCredentials)
	}
	return nil
}

// config returns the TLS configuration, or nil without TLS.
func (c *Credentials) config(name string) (*tls.Config, error) {
	if !c.secured() {
		return nil, nil
	}
	t := &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12}
	if c.Cert != "" {
		load := tls.LoadX509KeyPair // the user named the files: they may be pipes, such as <(COMMAND)
		if c.Cert == c.Own {
			load = file.KeyPair
		}
		pair, err := load(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s, key %s: %w", c.Cert, c.Key, err)
		}
		t.Certificates = []tls.Certificate{pair}
		// The certificate is shown whatever authorities the server names: the server decides.
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	switch {
	case c.Own != "":
		own, err := leafOf(c.Own)
		if err != nil {
			return nil, err
		}
		t.InsecureSkipVerify = true // VerifyConnection verifies instead
		t.VerifyConnection = func(s tls.ConnectionState) error {
			if !s.PeerCertificates[0].Equal(own) {
				return fmt.Errorf("the server has another certificate than the certificate in %s", c.Own)
			}
			return nil
		}
	case c.CA != SystemCA:
		pool, err := authorities(c.CA, os.ReadFile)
		if err != nil {
			return nil, err
		}
		t.RootCAs = pool
	}
	return t, nil
}

func leafOf(path string) (*x509.Certificate, error) {
	text, err := file.ReadPEM(path)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s contains no certificate: write a PEM file", path)
	}
	return x509.ParseCertificate(block.Bytes)
}

// essentials are, by the path of the request, the members without which an answer would mean something else. Members
// that were added later do not belong here: a process of an older version answers without them.
var essentials = map[string][]string{
	"/v1/status":        {"state", "pid"},
	"/v1/generations":   {"current"},
	"/v1/plan":          {"generation", "changes"},
	"/v1/reload":        {"generation"},
	"/v1/confirm":       {"generation"},
	"/v1/rollback":      {"generation"},
	"/v1/sessions":      {"sessions"},
	"/v1/sessions/end":  {"touched", "done"},
	"/v1/sessions/keep": {"requests"},
	"/v1/sources":       {"sources"},
	"/v1/denied":        {"denied"},
	"/v1/deny/add":      {"source", "until"},
	"/v1/why":           {"count"},
	"/v1/endpoint":      {"endpoint"}, // and each path below it
}

// missing returns the first essential member that the answer lacks or has as null, or "". It reads the answer up to the
// last essential member.
func missing(of string, body []byte) string {
	names := essentials[of]
	if names == nil {
		names = essentials[path.Dir(of)]
	}
	d := json.NewDecoder(bytes.NewReader(body))
	lacks := slices.Clone(names)
	_, err := d.Token() // the brace
	for err == nil && len(lacks) > 0 && d.More() {
		var name json.Token
		var value json.RawMessage
		if name, err = d.Token(); err == nil {
			err = d.Decode(&value)
		}
		if string(value) != "null" || name == "changes" {
			lacks = slices.DeleteFunc(lacks, func(lack string) bool { return err == nil && name == lack })
		}
	}
	if len(lacks) == 0 {
		return ""
	}
	return lacks[0]
}

// RoundTrip implements [http.RoundTripper]. It sends a request to the server at the client's address with the client's
// credentials, whatever host and credentials the request names. The response is unchanged, and may be a stream.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host, r.Host = c.scheme, c.host, c.host
	r.Header.Del("Authorization")
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Transport.RoundTrip(r)
	if err != nil {
		return nil, c.explain(r.Context(), err)
	}
	return answer, nil
}

// Parts of refusals, in HTTP terms.
const (
	writeToken      = "write the header Authorization: Bearer TOKEN"
	showCertificate = "send a certificate issued by client_ca in the TLS handshake"
)

// commandTerms replaces the HTTP terms of refusals by the terms of the commands.
var commandTerms = strings.NewReplacer(
	writeToken, "write --token-file FILE",
	showCertificate, "write --cert FILE --key FILE",
	"GET /v1/sessions", "penstock sessions",
	"rollback_if", "rollback-if",
)

var endpointRequest = regexp.MustCompile(`send POST /v1/endpoint/(\w+)\?upstream=(\S+?)&endpoint=(\S+)`)

// inCommandTerms returns a refusal in the terms of the commands, which use a [Client].
func inCommandTerms(text string) string {
	return endpointRequest.ReplaceAllString(commandTerms.Replace(text), "use penstock endpoint $1 $2 $3")
}
