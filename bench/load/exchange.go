package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/traffic"
)

// order is which side ends first.
type order int

const (
	together    order = iota // each ends when it has sent its bytes
	clientFirst              // the server sends when the client has ended
	serverFirst              // the client sends when the server has ended
)

// How a slow client receives (the buffer has room for a segment of loopback's,
// or the other side would send by timer), and how long a report is waited for
// between two looks.
const (
	slowBuffer = 128 << 10 // SO_RCVBUF
	slowPause  = time.Millisecond
	look       = 2 * time.Millisecond
)

// exchange is bytes both ways on one connection, and their ends.
type exchange struct {
	up, down   int64
	order      order
	slowClient bool
	slowServer bool
}

// exchange makes one and checks both ends of it.
func (e *examiner) exchange(x exchange) error {
	buffer, pause := 0, time.Duration(0)
	if x.slowClient {
		buffer, pause = slowBuffer, slowPause
	}
	t, hangUp, err := e.dial(buffer)
	if err != nil {
		return err
	}
	defer hangUp()
	s, err := e.script(t, traffic.Script{Give: x.down, After: x.order == clientFirst, Slow: x.slowServer})
	if err != nil {
		return err
	}
	sum, seed := newSum(), e.r.nextSeed()
	up := func() error {
		if err := t.upload(seed, x.up, sum); err != nil {
			return err
		}
		if err := t.CloseWrite(); err != nil {
			return fmt.Errorf("ending the upload: %w", said(err))
		}
		return nil
	}
	down := func() error {
		if err := t.download(traffic.NewStream(s.Seed), x.down, pause); err != nil {
			return err
		}
		return t.finish()
	}
	if err := x.order.run(up, down); err != nil {
		return err
	}
	report, err := e.report(s.Token)
	switch {
	case err != nil:
		return err
	case report.State != traffic.StateEnded:
		return fmt.Errorf("the server has seen %q, not the end of both sides", report.State)
	}
	e.connections++
	return checkSum(report, x.up, sum)
}

// run does both directions in their order.
func (o order) run(up, down func() error) error {
	switch o {
	case clientFirst:
		return inTurn(up, down)
	case serverFirst:
		return inTurn(down, up)
	}
	sent := make(chan error, 1)
	go func() { sent <- up() }()
	err := down()
	return errors.Join(err, <-sent)
}

func inTurn(first, second func() error) error {
	if err := first(); err != nil {
		return err
	}
	return second()
}

// report asks how the connection with that token has ended, and asks again as
// long as it has not.
func (e *examiner) report(token uint64) (traffic.Report, error) {
	for {
		r, err := e.tell(token)
		switch {
		case err != nil:
			return r, fmt.Errorf("asking the server how the connection ended: %w", err)
		case r.State != traffic.StateOpen && r.State != traffic.StateNone:
			return r, nil
		case time.Until(e.deadline) < 20*look:
			return r, nil
		}
		time.Sleep(look)
	}
}

// tell asks for a report.
func (e *examiner) tell(token uint64) (r traffic.Report, err error) {
	t, hangUp, err := e.dial(0)
	if err != nil {
		return r, err
	}
	defer hangUp()
	if _, err := t.Write(traffic.AppendTell(nil, token)); err != nil {
		return r, said(err)
	}
	line, err := io.ReadAll(io.LimitReader(t, traffic.MaxLine))
	if err != nil {
		return r, said(err)
	}
	return traffic.ParseReport(line)
}

// once has a message back and sees the server close.
func (e *examiner) once() error {
	t, hangUp, err := e.dial(0)
	if err != nil {
		return err
	}
	defer hangUp()
	if err := t.once(e.r.nextSeed(), 3000); err != nil {
		return err
	}
	e.connections++
	return nil
}

// once sends n bytes, and has them back and then the end of file.
func (t *talk) once(seed uint32, n int) error {
	message := traffic.AppendOnce(make([]byte, 0, n), uint32(n))
	message = append(message, traffic.NewStream(seed).Next(n-len(message))...)
	if _, err := t.Write(message); err != nil {
		return fmt.Errorf("sending: %w", said(err))
	}
	back := make([]byte, n)
	m, err := io.ReadFull(t, back)
	switch {
	case !bytes.Equal(back[:m], message[:m]):
		return errMismatch
	case err != nil:
		return fmt.Errorf("after %d of %d bytes: %w", m, n, said(err))
	}
	return t.finish()
}

// many makes 200 exchanges at once, each with contents and a length of its own.
func (e *examiner) many() error {
	const n = 200
	errs := make([]error, n)
	var ended sync.Mutex
	var all sync.WaitGroup
	alone := *e
	alone.connections = 0
	for i := range n {
		all.Go(func() {
			own := alone
			if err := own.exchange(exchange{up: 40_000 + int64(i), down: 60_000 - int64(i)}); err != nil {
				errs[i] = fmt.Errorf("connection %d of %d: %w", i+1, n, err)
			}
			ended.Lock()
			defer ended.Unlock()
			e.connections += own.connections
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err // the others' are like it
		}
	}
	return nil
}

// resetByClient resets a quiet connection, of which the server would reset its
// side, and so has not ended it. The server has to see a reset.
func (e *examiner) resetByClient() error {
	const size = 1000
	return e.abrupt(traffic.Script{Give: size, Reset: true}, size, "the client's reset")
}

// vanish resets a connection while it downloads more than fits into buffers.
func (e *examiner) vanish() error {
	return e.abrupt(traffic.Script{Give: 1 << 30}, 1<<20, "the client's reset")
}

// abrupt downloads n bytes, then resets, and asks for the server's report.
func (e *examiner) abrupt(s traffic.Script, n int64, what string) error {
	t, hangUp, err := e.dial(0)
	if err != nil {
		return err
	}
	defer hangUp()
	if s, err = e.script(t, s); err != nil {
		return err
	}
	if err := t.download(traffic.NewStream(s.Seed), n, 0); err != nil {
		return err
	}
	t.reset()
	r, err := e.report(s.Token)
	switch {
	case err != nil:
		return err
	case r.State == traffic.StateEnded:
		return fmt.Errorf("%s reached the server as an end of file", what)
	case r.State == traffic.StateOpen:
		return fmt.Errorf("%s has not reached the server", what)
	case r.State != traffic.StateReset:
		return fmt.Errorf("the server has seen %q, not a reset", r.State)
	}
	return nil
}

// resetByServer has the server reset a connection. The client has to see it.
func (e *examiner) resetByServer() error {
	const size = 1000
	t, hangUp, err := e.dial(0)
	if err != nil {
		return err
	}
	defer hangUp()
	s, err := e.script(t, traffic.Script{Give: size + 1, Reset: true})
	if err != nil {
		return err
	}
	content := traffic.NewStream(s.Seed)
	if err := t.download(content, size+1, 0); err != nil {
		return err
	}
	if _, err := t.Write([]byte("x")); err != nil {
		return fmt.Errorf("sending: %w", said(err))
	}
	switch n, err := t.Read(make([]byte, 1)); {
	case n > 0:
		return errors.New("bytes come after the last one")
	case errors.Is(err, syscall.ECONNRESET):
		return nil
	case errors.Is(err, io.EOF):
		return errors.New("the server's reset reached the client as an end of file")
	default:
		return fmt.Errorf("waiting for the server's reset: %w", said(err))
	}
}
