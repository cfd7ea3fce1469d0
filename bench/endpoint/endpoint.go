// Package endpoint has servers that fail on request, in a separate process, and the client that asks them. It is
// for Linux only.
//
// An endpoint reads an HTTP request without a body, answers it after a time, and closes. Its state is a [Failure].
// If it is [Frozen], a signal has stopped its process. Then the endpoint does nothing, but the kernel goes on
// accepting connections for it.
package endpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// maxHead is the largest request that an endpoint reads, in bytes. acceptQueue is how many connections wait for
// one endpoint; the kernel allows fewer (somaxconn). attempts is how many ports are tried.
const (
	maxHead     = 4 << 10
	acceptQueue = 4096
	attempts    = 10
)

// A Failure is a state of endpoints.
type Failure string

// The failures.
const (
	Healthy Failure = "" // the endpoint works
	Silent  Failure = "silent"
	Slow    Failure = "slow"
	Refuse  Failure = "refuse"
	Reset   Failure = "reset"
	Frozen  Failure = "frozen" // the process with the endpoints is stopped
)

// About describes the behaviour of endpoints in one line.
func (f Failure) About() string {
	return map[Failure]string{
		Silent: "accept connections, and send nothing",
		Slow:   "answer late",
		Refuse: "refuse connections, and have reset the existing connections",
		Reset:  "accept connections, and reset each at once",
	}[f]
}

// An endpoint is a server that can be made to fail.
type endpoint struct {
	listener *net.TCPListener // owned
	service  time.Duration    // how long an answer takes
	answer   []byte
	state    atomic.Pointer[state]
}

// A state is the state of an endpoint until the next state.
type state struct {
	failure Failure
	delay   time.Duration // mean delay if the state is Slow
	ended   chan struct{} // closed when the endpoint is put into another state
}

func newEndpoint(service time.Duration, answer []byte) (*endpoint, error) {
	l, err := listen()
	if err != nil {
		return nil, err
	}
	e := &endpoint{listener: l, service: service, answer: answer}
	e.state.Store(&state{ended: make(chan struct{})})
	return e, nil
}

// listen listens at a free port. It binds the socket to the port by number. If the kernel had chosen the port, the
// socket would give it back at a shutdown (net/ipv4/tcp.c, tcp_set_state).
func listen() (*net.TCPListener, error) {
	var failed error
	for range attempts {
		free, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		at := free.Addr().String()
		_ = free.Close()
		l, err := net.Listen("tcp4", at)
		if err == nil {
			return l.(*net.TCPListener), nil
		}
		failed = err // another process has taken the port
	}
	return nil, failed
}

// turn changes the endpoint's state. Only one goroutine may call it.
func (e *endpoint) turn(f Failure, delay time.Duration) error {
	was := e.state.Load()
	if was.failure == f {
		return nil
	}
	var err error
	if f == Refuse {
		err = e.control(func(fd int) error { return syscall.Shutdown(fd, syscall.SHUT_RD) })
	}
	e.state.Store(&state{failure: f, delay: delay, ended: make(chan struct{})})
	if was.failure == Refuse {
		err = errors.Join(err, e.control(func(fd int) error { return syscall.Listen(fd, acceptQueue) }))
	}
	close(was.ended)
	return err
}

// control calls f with the listening socket. After a shutdown the socket does not listen any more, but it keeps
// its address, so no other process can take the address meanwhile (net/ipv4/af_inet.c, inet_shutdown).
func (e *endpoint) control(f func(fd int) error) error {
	raw, err := e.listener.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// serve serves until ctx is done, and returns when all clients have ended.
func (e *endpoint) serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = e.listener.Close() })
	defer stop()
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		c, err := e.listener.AcceptTCP()
		s := e.state.Load()
		switch {
		case err == nil && s.failure == Reset:
			reset(c)
		case err == nil:
			serving.Go(func() { e.answerOne(ctx, c) })
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, syscall.EINVAL): // the socket does not listen, or has just begun to listen again
			if s.failure == Refuse {
				s.wait(ctx, nil)
			}
		default:
			time.Sleep(time.Millisecond) // a temporary error, such as a lack of descriptors
		}
	}
}

// answerOne serves one connection, which it owns.
func (e *endpoint) answerOne(ctx context.Context, c *net.TCPConn) {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if readHead(c) != nil || !pause(ctx, nil, e.service) {
		return
	}
	for s := e.state.Load(); s.failure != Healthy; s = e.state.Load() {
		switch s.failure {
		case Refuse, Reset:
			reset(c)
			return
		case Slow:
			if pause(ctx, s.ended, time.Duration(rand.ExpFloat64()*float64(s.delay))) {
				_, _ = c.Write(e.answer)
				return
			}
		case Silent:
			s.wait(ctx, nil)
		}
		if ctx.Err() != nil {
			return
		}
	}
	_, _ = c.Write(e.answer)
}

func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// wait waits until timer fires, the state ends, or ctx ends. It reports whether the timer has fired.
func (s *state) wait(ctx context.Context, timer <-chan time.Time) (timed bool) {
	select {
	case <-timer:
		return true
	case <-s.ended:
	case <-ctx.Done():
	}
	return false
}

// pause waits for d. It returns false if ended was closed or ctx ended before that.
func pause(ctx context.Context, ended chan struct{}, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	return (&state{ended: ended}).wait(ctx, timer.C)
}

// readHead reads a request without a body.
func readHead(c *net.TCPConn) error {
	var buf [maxHead]byte
	for n := 0; n < len(buf); {
		m, err := c.Read(buf[n:])
		n += m
		if bytes.HasSuffix(buf[:n], []byte("\r\n\r\n")) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("the request has more than %d bytes", maxHead)
}
