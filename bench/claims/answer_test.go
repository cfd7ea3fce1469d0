package claims

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/vecio"
)

// busyPoll is how long the loop of measureBusyPoll asks before it sleeps.
const busyPoll = 50 * time.Microsecond

// measureBusyPoll asks a loop over one connection and waits for each answer: a loop that
// sleeps when there is nothing to do, and one that polls for a while first.
func measureBusyPoll(ctx context.Context) (r Result, err error) {
	const sleeps, polls = "a loop that sleeps", "a loop that polls for 50 µs"
	var fails failure
	var contestants []candidate
	for _, c := range []struct {
		name string
		poll time.Duration
	}{{sleeps, 0}, {polls, busyPoll}} {
		s, err := newEchoLoop(c.poll)
		if err != nil {
			return r, err
		}
		defer s.close()
		contestants = append(contestants, candidate{c.name, repeat(func() { fails.note(s.ask()) })})
	}
	times, err := fails.alternate(ctx, 200, contestants...)
	if err != nil {
		return r, err
	}
	r = Result{times.median(sleeps, 1), times.median(polls, 1), times.ratio(polls, sleeps)}
	return r, nil
}

// An echoLoop is a loop that echoes one connection, and that connection's other end.
type echoLoop struct {
	loop   *loop.Loop
	id     loop.ID
	fd     int // owned by the loop's goroutine
	client *net.TCPConn
	ended  chan error
	buffer [64]byte
}

func newEchoLoop(poll time.Duration) (*echoLoop, error) {
	l, err := loop.New(&loop.Config{BusyPoll: poll})
	if err != nil {
		return nil, err
	}
	near, far, err := connection()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	e := &echoLoop{loop: l, client: near, ended: make(chan error, 1)}
	if e.fd, err = loop.Take(far); err == nil {
		e.id, err = l.Add(e.fd, 0, e)
	}
	if err == nil {
		err = near.SetDeadline(time.Now().Add(time.Minute))
	}
	if err != nil {
		near.Close()
		return nil, errors.Join(err, l.Close())
	}
	go func() { e.ended <- l.Run() }()
	return e, nil
}

// Ready implements [loop.Handler].
func (e *echoLoop) Ready(uint8, loop.Events) {
	n, err := syscall.Read(e.fd, e.buffer[:])
	if n > 0 {
		_, err = syscall.Write(e.fd, e.buffer[:n])
		e.loop.Again(e.id)
	}
	if n == 0 || err != nil && err != syscall.EAGAIN {
		e.loop.Drop(e.id)
		sys.Close(e.fd)
	}
}

func (e *echoLoop) ask() error {
	var b [64]byte
	if _, err := e.client.Write(b[:]); err != nil {
		return err
	}
	_, err := io.ReadFull(e.client, b[:])
	return err
}

// close ends the connection, so that the loop closes its end, and then the loop.
func (e *echoLoop) close() {
	_ = e.client.CloseWrite()
	_, _ = io.Copy(io.Discard, e.client)
	e.client.Close()
	e.loop.Stop()
	<-e.ended
	_ = e.loop.Close()
}

// measureNagle sends a question in two small pieces and waits for its answer: with Nagle's
// algorithm, without it, and with it but both pieces in one call.
func measureNagle(ctx context.Context) (r Result, err error) {
	const nagle, noDelay, gathered = "Nagle's algorithm", "TCP_NODELAY", "Nagle's algorithm, gathered"
	var fails failure
	var contestants []candidate
	for _, c := range []struct {
		name    string
		noDelay bool
		gather  bool
	}{{nagle, false, false}, {noDelay, true, false}, {gathered, false, true}} {
		a, err := newAsker(c.noDelay, c.gather)
		if err != nil {
			return r, err
		}
		defer a.close()
		contestants = append(contestants, candidate{c.name, repeat(func() { fails.note(a.ask()) })})
	}
	times, err := fails.alternate(ctx, 20, contestants...)
	if err != nil {
		return r, err
	}
	r = Result{
		times.median(nagle, 1), times.median(noDelay, 1), times.median(gathered, 1),
		times.ratio(noDelay, nagle), times.ratio(gathered, noDelay),
	}
	return r, nil
}

// An asker asks in two pieces of 32 bytes, and gets one byte when both have come.
type asker struct {
	client *net.TCPConn
	writer *vecio.Writer // nil: a Write for each piece
	ended  chan error
}

func newAsker(noDelay, gather bool) (*asker, error) {
	near, far, err := connection()
	if err != nil {
		return nil, err
	}
	a := &asker{client: near, ended: make(chan error, 1)}
	err = errors.Join(near.SetNoDelay(noDelay), near.SetDeadline(time.Now().Add(time.Minute)))
	if err == nil && gather {
		a.writer, err = vecio.New(near, nil)
	}
	if err != nil {
		near.Close()
		far.Close()
		return nil, err
	}
	go func() { a.ended <- answer(far) }()
	return a, nil
}

// answer answers every 64 bytes with one, until the end of the stream.
func answer(c net.Conn) error {
	defer c.Close()
	var b [64]byte
	for {
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return err
		}
		if _, err := c.Write(b[:1]); err != nil {
			return err
		}
	}
}

func (a *asker) ask() error {
	var b [32]byte
	for range 2 {
		var err error
		if a.writer != nil {
			err = a.writer.Append(b[:])
		} else {
			_, err = a.client.Write(b[:])
		}
		if err != nil {
			return err
		}
	}
	if a.writer != nil {
		if err := a.writer.Flush(); err != nil {
			return err
		}
	}
	_, err := io.ReadFull(a.client, b[:1])
	return err
}

func (a *asker) close() {
	if a.writer != nil {
		_ = a.writer.Close()
	}
	a.client.Close()
	<-a.ended
}
