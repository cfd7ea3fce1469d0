package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/sockopt"
)

// A demoEndpoint answers every line by its name.
type demoEndpoint struct {
	name    string
	address string // of the listener; its port is chosen by the first open

	mu       sync.Mutex
	listener net.Listener // owned; nil: it is dead
	conns    map[net.Conn]bool
	serving  sync.WaitGroup
}

// open listens and serves.
func (e *demoEndpoint) open() error {
	l, err := net.Listen("tcp", e.address)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.listener, e.address, e.conns = l, l.Addr().String(), make(map[net.Conn]bool)
	e.serving.Go(func() { e.accept(l) })
	return nil
}

func (e *demoEndpoint) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		e.mu.Lock()
		alive := e.listener == l
		if alive {
			e.conns[conn] = true
			e.serving.Go(func() { e.serve(conn) })
		}
		e.mu.Unlock()
		if !alive {
			_ = conn.Close()
		}
	}
}

func (e *demoEndpoint) serve(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if _, err := io.WriteString(conn, e.name+"\n"); err != nil {
			break
		}
	}
	e.mu.Lock()
	delete(e.conns, conn)
	e.mu.Unlock()
}

// kill closes the listener and resets the connections, and waits until nothing is left.
func (e *demoEndpoint) kill() {
	e.mu.Lock()
	if e.listener != nil {
		_ = e.listener.Close()
		e.listener = nil
	}
	for conn := range e.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
	e.mu.Unlock()
	e.serving.Wait()
}

// A demoResult is the result of clients.
type demoResult struct {
	served  map[string]int // clients by endpoint
	failed  []demoFailure  // the others
	longest time.Duration  // from the connect to the first answer
}

// A demoFailure is a client that got no answer, or lost its session after the first one.
type demoFailure struct {
	time     time.Time
	answered bool
	err      error
}

// all returns the number of clients that were served to their end.
func (r *demoResult) all() (n int) {
	for _, served := range r.served {
		n += served
	}
	return n
}

// cut returns the number of clients that lost their sessions, and of those without an answer.
func (r *demoResult) cut() (cut, unanswered int) {
	for _, f := range r.failed {
		if f.answered {
			cut++
		} else {
			unanswered++
		}
	}
	return cut, unanswered
}

// A demoLoad is clients, so many in a second. Each asks a few times, and closes.
type demoLoad struct {
	address string
	quit    chan struct{}
	once    sync.Once
	clients sync.WaitGroup

	mu  sync.Mutex
	sum demoResult
}

const (
	demoRequests = 4                     // of a client
	demoThink    = 25 * time.Millisecond // between two requests
	demoPatience = 10 * time.Second      // for an answer
)

func startDemoLoad(address string, rate int) *demoLoad {
	l := &demoLoad{address: address, quit: make(chan struct{}), sum: demoResult{served: make(map[string]int)}}
	ticks := time.NewTicker(time.Second / time.Duration(rate))
	l.clients.Go(func() {
		defer ticks.Stop()
		for {
			select {
			case <-l.quit:
				return
			case <-ticks.C:
				l.clients.Go(l.client)
			}
		}
	})
	return l
}

// stop begins no more clients, waits for those under way, and returns the result.
func (l *demoLoad) stop() demoResult {
	l.once.Do(func() { close(l.quit) })
	l.clients.Wait()
	return l.result()
}

// result returns the result so far.
func (l *demoLoad) result() demoResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := demoResult{served: make(map[string]int), failed: l.sum.failed, longest: l.sum.longest}
	for name, n := range l.sum.served {
		r.served[name] = n
	}
	return r
}

// client is one client.
func (l *demoLoad) client() {
	begin := time.Now()
	name, wait, err := l.session(begin)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum.longest = max(l.sum.longest, wait)
	if err != nil {
		l.sum.failed = append(l.sum.failed, demoFailure{time.Now(), name != "", err})
		return
	}
	l.sum.served[name]++
}

// session asks, and returns the endpoint and the wait for the first answer.
func (l *demoLoad) session(begin time.Time) (name string, wait time.Duration, err error) {
	conn, err := sockopt.Dial(context.Background(), &net.Dialer{Timeout: demoPatience}, "tcp", l.address)
	if err != nil {
		return "", time.Since(begin), err
	}
	defer conn.Close()
	if err := conn.SetDeadline(begin.Add(demoPatience)); err != nil {
		return "", 0, err
	}
	answers := bufio.NewReader(conn)
	for i := range demoRequests {
		if i > 0 {
			time.Sleep(demoThink)
		}
		if _, err := io.WriteString(conn, "hello\n"); err != nil {
			return name, wait, err
		}
		line, err := answers.ReadString('\n')
		if i == 0 {
			wait = time.Since(begin)
		}
		line = strings.TrimSpace(line)
		switch {
		case errors.Is(err, io.EOF):
			return name, wait, errors.New("the connection was closed before the answer")
		case err != nil:
			return name, wait, err
		case i > 0 && line != name:
			return name, wait, fmt.Errorf("an answer of endpoint %s in a session with %s", line, name)
		}
		name = line
	}
	return name, wait, nil
}
