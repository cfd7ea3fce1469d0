package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/process"
)

// PartLoad is the name of the part that has all clients.
const PartLoad = "clients-of-endpoints"

// Load is the plan of a process of clients. The load is open: clients begin at a steady rate, however long other
// clients take. The part reads the plan as one line.
type Load struct {
	Addresses []string      `json:"addresses"` // the clients of all addresses take turns, so that the clients of each address are evenly spaced
	Rate      float64       `json:"rate"`      // clients a second for each address
	Timeout   time.Duration `json:"timeout"`   // timeout of a client
	Length    time.Duration `json:"length"`
	Answer    int           `json:"answer"`  // size of an answer in bytes, see [AnswerBytes]
	Sources   int           `json:"sources"` // number of local addresses from which the clients of an address come in turn; 0: the kernel chooses
	File      string        `json:"file"`    // file for the outcomes
}

// Outcome is the result of a client.
type Outcome struct {
	Began, Ended time.Duration // since the beginning of the load
	First        time.Duration // from when it began to the answer's first byte, if one came
	Lost         string        // why the client was lost; "" if it was served
}

type began struct {
	At time.Time `json:"at"`
}

// RunLoad runs the part. It prints a line when the load has begun. It prints another line once the last client has
// ended and the outcomes are in their file. It ends when ctx or in ends, if not before.
func RunLoad(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("the load: %w", err)
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var p Load
	from, to := json.NewDecoder(in), json.NewEncoder(out)
	if err := from.Decode(&p); err != nil {
		return fmt.Errorf("the plan: %w", err)
	}
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in)
	}()
	start := time.Now()
	if err := to.Encode(began{start}); err != nil {
		return err
	}
	text, err := json.Marshal(p.drive(ctx, start))
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = os.WriteFile(p.File, text, 0o600)
	}
	if err != nil {
		return err
	}
	return to.Encode(began{start})
}

// drive starts all clients, and returns when the last one has ended.
func (p *Load) drive(ctx context.Context, start time.Time) [][]Outcome {
	var mu sync.Mutex
	all := make([][]Outcome, len(p.Addresses))
	AtRate(ctx, start, p.Rate*float64(len(p.Addresses)), p.Length, func(i int, at time.Duration) {
		n := i / len(p.Addresses)
		i %= len(p.Addresses)
		began := start.Add(at)
		r := Request{Address: p.Addresses[i], Deadline: began.Add(p.Timeout), Answer: p.Answer}
		if p.Sources > 0 {
			r.From = netip.AddrFrom4([4]byte{127, 0, 1, byte(1 + n%p.Sources)})
		}
		first, err := Ask(ctx, r)
		o := Outcome{Began: at, Ended: time.Since(start), First: first.Sub(began)}
		if err != nil {
			o.Lost = Reason(err)
		}
		mu.Lock()
		defer mu.Unlock()
		all[i] = append(all[i], o)
	})
	return all
}

// Clients are a load in a separate process.
type Clients struct {
	Began time.Time
	child *process.Child
	file  string
}

// StartLoad starts clients, and returns when they have begun. They end with the group at the latest. spec says how
// to start a process that calls [RunLoad].
func StartLoad(ctx context.Context, g *process.Group, spec process.Spec, p *Load) (*Clients, error) {
	var b began
	child, err := g.Begin(ctx, spec, p, &b)
	if err != nil {
		return nil, err
	}
	return &Clients{b.At, child, p.File}, nil
}

// Outcomes waits for the end of the load, and returns the outcomes of the clients by address.
func (c *Clients) Outcomes(ctx context.Context) (all [][]Outcome, err error) {
	var b began
	if err := c.child.Receive(ctx, &b); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(c.file)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	return all, err
}

// Kill ends the process.
func (c *Clients) Kill() { c.child.Kill() }

const requestText = "GET / HTTP/1.1\r\nHost: endpoint\r\nConnection: close\r\n\r\n"

// The reasons why requests fail.
var (
	errClosed = errors.New("closed without an answer")
	errCut    = errors.New("cut short")
)

// A Request is the request of one client, on its own connection.
type Request struct {
	Address  string
	From     netip.Addr // local address; with the zero Addr the kernel chooses
	Deadline time.Time  // when the client gives up
	Answer   int        // size of the whole answer in bytes, see [AnswerBytes]
}

// Ask makes a request and reads its answer. first is when the answer's first byte came, or zero.
func Ask(ctx context.Context, r Request) (first time.Time, err error) {
	dialer := net.Dialer{Deadline: r.Deadline}
	if r.From.IsValid() {
		dialer.LocalAddr = &net.TCPAddr{IP: r.From.AsSlice()}
	}
	c, err := dialer.DialContext(ctx, "tcp", r.Address)
	if err != nil {
		return first, err
	}
	defer c.Close()
	if err := c.SetDeadline(r.Deadline); err != nil {
		return first, err
	}
	if _, err := io.WriteString(c, requestText); err != nil {
		return first, err
	}
	n, err := c.Read(make([]byte, r.Answer))
	switch {
	case n > 0:
		first = time.Now()
	case err == io.EOF:
		return first, errClosed
	}
	if err != nil && err != io.EOF {
		return first, err
	}
	switch rest, err := io.Copy(io.Discard, c); {
	case err != nil:
		return first, err
	case n+int(rest) != r.Answer:
		return first, errCut
	}
	return first, nil
}

// Reason returns in one word why a request failed.
func Reason(err error) string {
	switch {
	case errors.Is(err, errClosed), errors.Is(err, errCut):
		return err.Error()
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "timed out"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "timed out"
	}
	return err.Error()
}

// AtRate calls ask at a rate per second, evenly spaced, for the time total. Each call is at its time after start
// in a new goroutine, however long other calls take. AtRate returns when the last call is over. After ctx has
// ended, no further call begins.
func AtRate(ctx context.Context, start time.Time, rate float64, total time.Duration, ask func(i int, at time.Duration)) {
	var under sync.WaitGroup
	defer under.Wait()
	for i := 0; ; i++ {
		at := time.Duration(float64(i) / rate * float64(time.Second))
		if at >= total || ctx.Err() != nil || !pause(ctx, nil, time.Until(start.Add(at))) {
			return
		}
		under.Go(func() { ask(i, at) })
	}
}
