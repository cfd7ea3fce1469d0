package handshake

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// PartClient is the name of the part that is the client.
const PartClient = "handshake-client"

// A mode is the behaviour of the client.
type mode string

const (
	fresh    mode = "new"           // handshakes without a ticket
	resumed  mode = "resumed"       // handshakes with the ticket of the previous connection
	plain    mode = "plain"         // connections without TLS
	messages mode = "messages"      // messages on one connection in TLS
	unsealed mode = "unsealed"      // messages on one connection without TLS
	many     mode = "many"          // messages on manyConnections connections at once, in TLS
	manyOpen mode = "many-unsealed" // the same without TLS
)

// plan is the task of the client.
type plan struct {
	Mode     mode          `json:"mode"`
	Address  string        `json:"address"`
	Workers  int           `json:"workers"`
	Duration time.Duration `json:"duration"`
}

// result is the result of a plan.
type result struct {
	Done    int64         `json:"done"` // connections, or messages
	Resumed int64         `json:"resumed"`
	Elapsed time.Duration `json:"elapsed"`
	P50     time.Duration `json:"p50"`
	P99     time.Duration `json:"p99"`
	// Agreed is the version of TLS and the cipher suite; "" without TLS.
	Agreed string `json:"agreed,omitempty"`
	Error  string `json:"error,omitempty"`
	// Ready is the answer to a plan of messages once its connections are open. The client continues when the next
	// line comes.
	Ready bool `json:"ready,omitempty"`
}

// serverName is the name in the certificate.
const serverName = "bench.example"

// messageSize is the size of each message, in bytes. In modes that are not lasting, each connection has one
// message echoed.
const messageSize = 64

// manyConnections is the number of connections of many and manyOpen.
const manyConnections = 64

func (m mode) sealed() bool { return m != plain && m != unsealed && m != manyOpen }

// lasting reports whether a connection has one message after the other.
func (m mode) lasting() bool { return m == messages || m == unsealed || m == many || m == manyOpen }

// patience limits how long the client waits for anything.
const patience = 10 * time.Second

// RunPart runs the client. For each line from in, it carries out the plan and prints a result, until in ends.
// Before messages, it prints that it is ready, and waits for a line.
func RunPart(ctx context.Context, in io.Reader, out io.Writer) error {
	say := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var p plan
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return fmt.Errorf("handshake: %w", err)
		}
		r, err := p.run(ctx, func() error {
			if err := say.Encode(result{Ready: true}); err != nil {
				return err
			}
			if !lines.Scan() {
				return io.ErrUnexpectedEOF
			}
			return nil
		})
		if err != nil {
			r = result{Error: err.Error()}
		}
		if err := say.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// run carries out the plan. It calls ready before messages.
func (p *plan) run(ctx context.Context, ready func() error) (result, error) {
	workers := p.workers(ctx)
	if p.Mode.lasting() {
		err := each(workers, (*worker).connect)
		defer func() { _ = each(workers, (*worker).disconnect) }()
		if err == nil {
			err = ready()
		}
		if err != nil {
			return result{}, err
		}
	}
	began := time.Now()
	for _, w := range workers {
		w.until = began.Add(p.Duration)
	}
	err := each(workers, (*worker).work)
	r, latency := result{Elapsed: time.Since(began)}, hdrhistogram.New(1, int64(time.Minute), 3)
	if err != nil {
		return r, err
	}
	for _, w := range workers {
		r.Done += w.done
		r.Resumed += w.resumed
		r.Agreed = w.agreed
		latency.Merge(w.latency)
	}
	r.P50, r.P99 = time.Duration(latency.ValueAtQuantile(50)), time.Duration(latency.ValueAtQuantile(99))
	return r, ctx.Err()
}

// each calls do for all workers at once, and returns one of the errors.
func each(workers []*worker, do func(*worker) error) error {
	errs := make([]error, len(workers))
	var all sync.WaitGroup
	for i, w := range workers {
		all.Go(func() { errs[i] = do(w) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) workers(ctx context.Context) []*worker {
	workers := make([]*worker, p.Workers)
	began := time.Now()
	for i := range workers {
		w := &worker{plan: p, ctx: ctx, until: began.Add(p.Duration), latency: hdrhistogram.New(1, int64(time.Minute), 3)}
		w.message = bytes.Repeat([]byte{'!' + byte(i%90)}, messageSize) // a sink echoes it
		if p.Mode.sealed() {
			w.tls = &tls.Config{
				ServerName: serverName, InsecureSkipVerify: true, // only the server is measured
				CurvePreferences: []tls.CurveID{tls.X25519}, // all servers have it
			}
		}
		if p.Mode == resumed {
			w.tls.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		}
		workers[i] = w
	}
	return workers
}

// worker makes one connection after the other, or keeps one connection.
type worker struct {
	*plan
	ctx           context.Context
	until         time.Time
	tls           *tls.Config // nil: without TLS
	message       []byte
	done, resumed int64
	latency       *hdrhistogram.Histogram // nanoseconds
	agreed        string
	conn          net.Conn // the connection for messages
}

// work has one message after the other echoed, on the connection for messages, or each on its own connection.
func (w *worker) work() error {
	for time.Now().Before(w.until) {
		began := time.Now()
		if err := w.once(); err != nil {
			return err
		}
		w.done++
		_ = w.latency.RecordValue(int64(time.Since(began)))
	}
	return nil
}

// connect makes the connection for messages, and disconnect closes it.
func (w *worker) connect() (err error) {
	w.conn, err = w.dial()
	return err
}

func (w *worker) disconnect() error {
	if w.conn == nil {
		return nil
	}
	return w.conn.Close()
}

// dial connects, and makes the TLS handshake.
func (w *worker) dial() (net.Conn, error) {
	dialer := net.Dialer{Timeout: patience, KeepAlive: -1}
	c, err := dialer.DialContext(w.ctx, "tcp", w.Address)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(w.until.Add(patience))
	if w.tls == nil {
		return c, nil
	}
	t := tls.Client(c, w.tls)
	if err := t.HandshakeContext(w.ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	state := t.ConnectionState()
	if state.DidResume {
		w.resumed++
	}
	w.agreed = tls.VersionName(state.Version) + ", " + tls.CipherSuiteName(state.CipherSuite)
	return t, nil
}

// once has a message echoed. In TLS 1.3 the ticket for the next connection comes before the message.
func (w *worker) once() error {
	if w.conn != nil {
		return w.ask(w.conn)
	}
	c, err := w.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	return w.ask(c)
}

func (w *worker) ask(c net.Conn) error {
	if _, err := c.Write(w.message); err != nil {
		return err
	}
	var got [messageSize]byte
	if _, err := io.ReadFull(c, got[:]); err != nil {
		return err
	}
	if !bytes.Equal(got[:], w.message) {
		return errors.New("another message came back")
	}
	return nil
}
