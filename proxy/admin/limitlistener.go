package admin

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A limitListener accepts the connections that it is given, up to a limit. It keeps one place
// free as long as it waits for the client of some connection. So a client that sends or reads
// nothing, or is slow, keeps no other client out.
type limitListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	most   int
	grace  time.Duration

	mu      sync.Mutex
	tracked []*trackedConn // open connections; the one waiting longest for its client is first
}

// graceTime is the least time that a client has for its request, and again for reading the
// response. A client on this machine needs much less.
const graceTime = 250 * time.Millisecond

func newLimitListener(limit int) *limitListener {
	return &limitListener{conns: make(chan net.Conn), closed: make(chan struct{}), most: limit, grace: graceTime}
}

// put passes a connection to Accept. release is called after the connection is closed.
func (f *limitListener) put(conn net.Conn, release func()) {
	c := &trackedConn{Conn: conn, listener: f, since: time.Now(), release: sync.OnceFunc(release)}
	f.mu.Lock()
	f.tracked = append(f.tracked, c)
	f.mu.Unlock()
	f.makeRoom()
	select {
	case f.conns <- c:
	case <-f.closed:
		c.Close()
	}
}

// makeRoom closes the connection that waits longest for its client, if all places are taken.
// It does so at once, or when the client's grace time is over.
func (f *limitListener) makeRoom() {
	f.mu.Lock()
	var leaves *trackedConn
	if i := slices.IndexFunc(f.tracked, func(c *trackedConn) bool { return !c.busy }); i >= 0 && len(f.tracked) >= f.most {
		if left := f.grace - time.Since(f.tracked[i].since); left > 0 {
			time.AfterFunc(left, f.makeRoom)
		} else {
			leaves = f.tracked[i]
			leaves.gone = true
			f.tracked = slices.Delete(f.tracked, i, i+1)
		}
	}
	f.mu.Unlock()
	if leaves != nil {
		leaves.Close()
	}
}

// Accept returns the next connection that was put.
func (f *limitListener) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

// Close stops accepting.
func (f *limitListener) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

// Addr implements [net.Listener].
func (f *limitListener) Addr() net.Addr { return &net.UnixAddr{Name: "admin", Net: "unix"} }

// A trackedConn is a connection of a limitListener, which it leaves on Close.
type trackedConn struct {
	net.Conn
	listener *limitListener
	release  func()

	// Guarded by mu of the listener:
	since time.Time // start of the wait for its client, unless busy
	busy  bool      // from reading its request until writing the response
	gone  bool
}

// Close closes the connection.
func (c *trackedConn) Close() error {
	defer c.release()
	f := c.listener
	f.mu.Lock()
	c.gone = true
	f.tracked = slices.DeleteFunc(f.tracked, func(other *trackedConn) bool { return other == c })
	f.mu.Unlock()
	return c.Conn.Close()
}

// begin starts a request. It reports false if the connection is already closed, so that no
// request runs without a client to receive the response.
func (c *trackedConn) begin() bool {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.busy = !c.gone
	return c.busy
}

// answer starts the wait for the client to read the response.
func (c *trackedConn) answer() {
	f := c.listener
	f.mu.Lock()
	if !c.busy {
		f.mu.Unlock()
		return
	}
	c.busy, c.since = false, time.Now()
	if i := slices.Index(f.tracked, c); i >= 0 {
		f.tracked = append(slices.Delete(f.tracked, i, i+1), c)
	}
	f.mu.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(writeTime)) // it may be closed
	f.makeRoom()
}

// trackedConnKey is the context key of a request's trackedConn.
type trackedConnKey struct{}

func withTrackedConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, trackedConnKey{}, conn)
}

// welcomed answers requests only on connections that are still open. No request has a body. If
// one is announced, the response does not wait for it. After the response it is waited for as
// long as anything else is.
func welcomed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(trackedConnKey{}).(*trackedConn)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		if !c.begin() {
			panic(http.ErrAbortHandler)
		}
		if r.Body != http.NoBody {
			_ = c.SetReadDeadline(time.Now().Add(graceTime)) // it may be closed
		}
		next.ServeHTTP(answerWriter{w, c}, r)
	})
}

// An answerWriter writes a response, and starts the wait for the client to read it.
type answerWriter struct {
	http.ResponseWriter
	conn *trackedConn
}

func (w answerWriter) Write(p []byte) (int, error) {
	w.conn.answer()
	return w.ResponseWriter.Write(p)
}
