package admin

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
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
	grace  time.Duration // graceTime, but in tests
	silent time.Duration // silentTime, but in tests
	reads  chan struct{} // one element for each long response that is being sent
	long   atomic.Bool   // the last status was one
	// inForce are the conditions by which clients are judged, whenever they have connected; nil: those of
	// their connections.
	inForce atomic.Pointer[conditions]

	mu      sync.Mutex
	tracked []*trackedConn // open connections; the one waiting longest for its client is first
	wanting int            // requests that wait for room in reads
}

// graceTime is the least time that a client has for the rest of its request, and again for reading
// the response. A client on this machine needs much less. silentTime is that for the request, which a
// client sends at once and as soon as it is connected.
const (
	graceTime  = 250 * time.Millisecond
	silentTime = 5 * time.Millisecond
)

// maxReads is how many long responses are sent at once to users that are not trusted: each is in memory
// until its client has read it. A status is one from longResponse bytes on.
const (
	maxReads     = 4
	longResponse = 256 << 10
)

func newLimitListener(limit int) *limitListener {
	f := &limitListener{conns: make(chan net.Conn), closed: make(chan struct{}), most: limit, grace: graceTime, silent: silentTime, reads: make(chan struct{}, maxReads)}
	f.long.Store(true) // until it is known
	return f
}

// put passes a connection to Accept. release is called after the connection is closed.
func (f *limitListener) put(conn net.Conn, of *conditions, release func()) {
	c := &trackedConn{Conn: conn, listener: f, since: time.Now(), conditions: of, unix: conn.LocalAddr().Network() == "unix", user: userOf(conn), release: sync.OnceFunc(release)}
	c.trusted = c.user.trusted()
	f.mu.Lock()
	f.tracked = append(f.tracked, c)
	f.mu.Unlock()
	f.makeRoom()
	var accepted net.Conn = c
	if of.tls != nil && !c.unix {
		accepted = tls.Server(c, of.tls)
	}
	select {
	case f.conns <- accepted:
	case <-f.closed:
		c.Close()
	}
}

// makeRoom closes the connection that waits longest for its client, if all places are taken, or if
// a long response waits for others. It does so at once, or when the client's grace
// time is over.
func (f *limitListener) makeRoom() {
	f.mu.Lock()
	var leave []*trackedConn
	if len(f.tracked) >= f.most {
		silence := min(f.silent, f.grace)
		leave = append(leave, f.evict((*trackedConn).silent, silence))
		if leave[0] == nil && slices.ContainsFunc(f.tracked, (*trackedConn).unclear) {
			time.AfterFunc(silence, f.makeRoom)
		}
		if leave[0] == nil {
			leave[0] = f.evict(func(c *trackedConn) bool { return c.queued }, 0)
		}
		if leave[0] == nil {
			leave[0] = f.evict(func(c *trackedConn) bool { return !c.busy }, f.grace)
		}
	}
	if f.wanting > 0 {
		leave = append(leave, f.evict(func(c *trackedConn) bool { return c.reading && !c.busy }, f.grace))
	}
	f.mu.Unlock()
	for _, c := range leave {
		if c != nil {
			c.Close()
		}
	}
}

// evict removes the first connection for which match reports true, of those of the users that are not
// trusted if there is one. If its grace time is not over, makeRoom is called when it is. The caller
// holds mu, and closes the connection.
func (f *limitListener) evict(match func(*trackedConn) bool, grace time.Duration) *trackedConn {
	i := slices.IndexFunc(f.tracked, func(c *trackedConn) bool { return !c.trusted && match(c) })
	if i < 0 {
		i = slices.IndexFunc(f.tracked, match)
	}
	if i < 0 {
		return nil
	}
	if left := grace - time.Since(f.tracked[i].since); left > 0 {
		time.AfterFunc(left, f.makeRoom)
		return nil
	}
	c := f.tracked[i]
	c.gone = true
	f.tracked = slices.Delete(f.tracked, i, i+1)
	return c
}

// beginRead waits until a long response may be made, unless ctx ends first. The caller calls endRead if
// that is true.
func (f *limitListener) beginRead(ctx context.Context, c *trackedConn) bool {
	select {
	case f.reads <- struct{}{}:
	default:
		f.want(c, 1)
		defer f.want(c, -1)
		f.makeRoom()
		select {
		case f.reads <- struct{}{}:
		case <-ctx.Done():
			return false
		}
	}
	f.mu.Lock()
	c.reading = true
	f.mu.Unlock()
	return true
}

func (f *limitListener) want(c *trackedConn, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanting += n
	c.queued = n > 0
}

// endRead is the end of a long response: it was written, or its connection is closed.
func (f *limitListener) endRead() { <-f.reads }

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

	conditions *conditions // of the address, when it was accepted
	unix       bool
	user       user        // of a unix socket
	trusted    bool        // the user is root, or that of this process
	waits      atomic.Bool // it waits for bytes of its client; what has come is being looked at otherwise

	// Guarded by mu of the listener:
	since   time.Time // start of the wait for its client, unless busy
	busy    bool      // from reading its request until writing the response
	reading bool      // its response is a long one
	queued  bool      // it waits for others of this kind
	asked   bool      // its request has come
	gone    bool
}

// judge returns the conditions of a request that is complete now.
func (c *trackedConn) judge() *conditions {
	if now := c.listener.inForce.Load(); now != nil {
		return now
	}
	return c.conditions
}

// silent reports whether its client has sent no request, or only a part of one, and all that has come was looked
// at: a request that a busy machine has not begun yet is none that is waited for. One with TLS may wait for
// a part of the handshake. The caller holds mu of the listener.
func (c *trackedConn) silent() bool {
	return !c.asked && c.waits.Load() && (c.unix || c.conditions.tls == nil) && !readable(c.Conn)
}

// unclear reports whether the server looks at bytes of a request that may be complete, or not: it is known soon. The
// caller holds mu of the listener.
func (c *trackedConn) unclear() bool { return !c.asked && !c.waits.Load() }

// Read implements [net.Conn].
func (c *trackedConn) Read(p []byte) (int, error) {
	c.waits.Store(true)
	n, err := c.Conn.Read(p)
	c.waits.Store(false)
	return n, err
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
	c.busy, c.asked = !c.gone, true
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

// resume ends the wait for the client to read a part of a stream: the next part is awaited.
func (c *trackedConn) resume() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.busy = !c.gone
}

// trackedConnKey is the context key of a request's trackedConn.
type trackedConnKey struct{}

func withTrackedConn(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
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
		status := r.URL.Path == "/v1/status"
		if status && !c.trusted && c.listener.long.Load() {
			if !c.listener.beginRead(r.Context(), c) {
				panic(http.ErrAbortHandler)
			}
			defer c.listener.endRead()
		}
		if r.Body != http.NoBody {
			_ = c.SetReadDeadline(time.Now().Add(graceTime)) // it may be closed
		}
		next.ServeHTTP(&answerWriter{w, c, status}, r)
	})
}

// An answerWriter writes a response, and starts the wait for the client to read it.
type answerWriter struct {
	http.ResponseWriter
	conn   *trackedConn
	status bool // it is a status, which is written at once
}

// Unwrap is for [http.ResponseController].
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader begins the response. A refusal is no status, whose length is remembered.
func (w *answerWriter) WriteHeader(code int) {
	w.status = w.status && code == http.StatusOK
	w.ResponseWriter.WriteHeader(code)
}

func (w *answerWriter) Write(p []byte) (int, error) {
	w.conn.answer()
	if w.status {
		w.conn.listener.long.Store(len(p) >= longResponse)
	}
	return w.ResponseWriter.Write(p)
}
