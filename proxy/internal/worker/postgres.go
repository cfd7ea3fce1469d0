package worker

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/postgres"
)

// A Postgres says how to answer PostgreSQL's negotiation before a target is chosen: requests for encryption are consumed
// and answered, everything else is only looked at.
type Postgres struct {
	// Terminate says that TLS ends in this process: a client that was promised TLS goes to its [Search] before its hello is
	// read. Otherwise the ClientHello is read, as with [Preread.Hello], and the endpoint is asked for TLS too.
	Terminate bool
	// RequireTLS refuses clients that do not ask for TLS, with an error of PostgreSQL.
	RequireTLS bool
	// Cancel gets a client that has sent a CancelRequest, and the request, which was read. It is required. The client's
	// loop calls it, and it must not wait. [Offloaded.Conn] is not for this client; its addresses are known.
	// [Offloaded.Close] ends it.
	Cancel func(h *Offloaded, request []byte)
}

// A PostgresClient is what a client has said in PostgreSQL's protocol.
type PostgresClient struct {
	// TLS says that the client speaks TLS, or is about to; Asked says that it asked for TLS first and was promised it.
	TLS, Asked bool
	// User and Database are from the startup message; empty: it was not read.
	User, Database string
	// Doubtful says that the endpoint may take other names, and OtherDatabase that the client may read another database.
	Doubtful, OtherDatabase bool

	declined    bool // a request for encryption by GSSAPI was declined
	passThrough bool // its TLS ends at the endpoint
}

// Hidden reports whether the user and the database cannot be read, because the client's TLS is passed through.
func (c *PostgresClient) Hidden() bool { return c.passThrough }

// Said notes the contents of the client's startup message.
func (c *PostgresClient) Said(m *postgres.Message) {
	c.User, c.Database, c.Doubtful, c.OtherDatabase = m.User, m.Database, m.Doubt != "", m.OtherDatabase
}

// Login returns the user and the database, for routes: in doubt if they are hidden or doubtful, and No before the startup
// message was read.
func (c *PostgresClient) Login() (user, database firstbytes.Property) {
	v := firstbytes.If(c.User != "")
	if c.Hidden() || c.Doubtful {
		v = firstbytes.Doubt
	}
	user, database = firstbytes.Property{Verdict: v, Value: c.User}, firstbytes.Property{Verdict: v, Value: c.Database}
	if c.OtherDatabase {
		database.Verdict = firstbytes.Doubt
	}
	return user, database
}

// ErrNoTLS is the error of a client that has to ask for TLS, and does not.
var ErrNoTLS = errors.New("the client does not ask for TLS, and require_tls is set")

// postgresMessage handles the next message in b, which holds all bytes so far.
func (w *worker) postgresMessage(c *Client, b []byte) {
	p, said := c.serving.service.Preread.Postgres, &c.Postgres
	m, err := postgres.Parse(b)
	switch {
	case err != nil:
	case m.Kind == postgres.SSLRequest:
		if err = w.answer(c, b, m.Len, postgres.Accepted, said.Asked); err == nil {
			said.Asked = true
			w.promised(c, p)
			return
		}
	case m.Kind == postgres.GSSENCRequest:
		if err = w.answer(c, b, m.Len, postgres.Declined, said.declined); err == nil {
			said.declined = true
			w.expect(c, awaitPostgres, 0)
			return
		}
	case m.Kind == postgres.Hello:
		w.promised(c, p)
		return
	case m.Kind == postgres.CancelRequest:
		request := bytes.Clone(b[:m.Len])
		if err = c.takeMessage(m.Len); err == nil {
			w.loop.Disarm(&c.timer)
			h := w.takeOff(c)
			h.Client.leave()
			p.Cancel(h, request)
			return
		}
	case p.RequireTLS:
		w.refuseWith(c, ErrNoTLS, noEncryption)
		return
	default:
		w.loop.Disarm(&c.timer)
		said.Said(&m)
		c.keep(b, len(b))
		w.prereadRead(c)
		return
	}
	w.refuse(c, err)
}

// noEncryption is the answer to a client that is refused with [ErrNoTLS].
var noEncryption = postgres.Refusal(postgres.NoEncryption, "this server requires TLS: connect with sslmode=require or stronger")

func (w *worker) promised(c *Client, p *Postgres) {
	c.Postgres.TLS = true
	if p.Terminate {
		w.loop.Disarm(&c.timer)
		w.search(c)
		return
	}
	c.Postgres.passThrough = true
	w.expect(c, awaitHello, 0)
}

// answer takes a request for encryption out of the client's queue, and answers it. Bytes of b behind the request were sent
// before the answer. again says that an earlier request was answered.
func (w *worker) answer(c *Client, b []byte, n int, with byte, again bool) error {
	switch {
	case again:
		return postgres.ErrAgain
	case len(b) > n:
		return postgres.ErrEarly
	}
	if err := c.takeMessage(n); err != nil {
		return err
	}
	switch sent, err := sendSome(c.fd, []byte{with}, 0); {
	case err != nil:
		return err
	case sent == 0: // does not happen: the client's send buffer is empty
		return syscall.ENOBUFS
	}
	return nil
}

// takeMessage takes a message of n bytes out of the client's queue.
func (c *Client) takeMessage(n int) error {
	if c.buffered != nil {
		c.buffered = c.buffered[:0] // bytes behind the message are refused, or not read any more
		return nil
	}
	return c.discard(n)
}

// askTLS asks an endpoint for TLS, after its PROXY header if there is one, for a client that was promised TLS.
func (w *worker) askTLS(c *Client) {
	w.header = w.header[:0]
	if c.step.ProxyHeader {
		w.header = c.search.ProxyHeader(w.header)
	}
	w.header = append(w.header, postgres.Request...)
	c.setNoDelay()
	n, err := sendSome(c.endpoint.fd, w.header, 0)
	if err != nil {
		w.failed(c, err)
		return
	}
	c.phase, c.rest = awaitAnswer, bytes.Clone(w.header[n:])
	w.arm(c, cmp.Or(max(c.step.Timeout, 0), headerTimeout))
	w.loop.Hand(c.endpoint.id, (*answerWait)(c))
}

// An answerWait is a pending client whose endpoint has not answered a request for TLS yet.
type answerWait Client

func (p *answerWait) Ready(_ uint8, events loop.Events) {
	c := (*Client)(p)
	w := c.worker
	c.endpoint.events |= events
	n, err := sendSome(c.endpoint.fd, c.rest, 0)
	if c.rest = c.rest[n:]; err != nil {
		w.failedAnswer(c, err)
		return
	}
	var b [2]byte // the answer is one byte; no second one may follow
	n, err = peekAt(c.endpoint.fd, b[:])
	switch {
	case err == syscall.EAGAIN:
		return
	case err == nil && n == 0:
		err = postgres.ErrUnanswered
	case err == nil:
		err = postgres.CheckAnswer(b[:n])
	}
	if err == nil {
		err = consume(c.endpoint.fd, b[:1], 0)
	}
	if err != nil {
		w.failedAnswer(c, err)
		return
	}
	w.loop.Disarm(&c.timer)
	c.phase, c.rest, c.step.ProxyHeader = dialing, nil, false // the endpoint has it already
	if c.search.Overruled() {
		c.dropEndpoint()
		w.proceed(c)
		return
	}
	if c.writesFirst() {
		w.writeProxyHeader(c)
	} else {
		w.join(c)
	}
}

// failedAnswer continues after an endpoint that does not begin TLS.
func (w *worker) failedAnswer(c *Client, err error) {
	w.loop.Disarm(&c.timer)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = postgres.ErrNoAnswer
	case !errors.Is(err, postgres.ErrEndpoint):
		err = fmt.Errorf("%w: %w", postgres.ErrUnanswered, err)
	}
	c.phase, c.rest = dialing, nil
	w.failed(c, err)
}
