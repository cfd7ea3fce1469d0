package admin

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A funnel is a listener that accepts what it is given. It keeps one place of so many free,
// as long as there is a connection whose client is waited for: who sends nothing or reads
// nothing, or does it slowly, keeps nobody out.
type funnel struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	most   int
	grace  time.Duration

	mu     sync.Mutex
	guests []*guest // who is there; the one that is waited for since longest is first
}

// graceTime is how long a client may take for its request, and again for reading the answer,
// at the least: who is on this machine and means it needs much less.
const graceTime = 250 * time.Millisecond

func newFunnel(most int) *funnel {
	return &funnel{conns: make(chan net.Conn), closed: make(chan struct{}), most: most, grace: graceTime}
}

// put has a connection accepted; release is called when it has ended.
func (f *funnel) put(conn net.Conn, release func()) {
	c := &guest{Conn: conn, funnel: f, since: time.Now(), release: sync.OnceFunc(release)}
	f.mu.Lock()
	f.guests = append(f.guests, c)
	f.mu.Unlock()
	f.makeRoom()
	select {
	case f.conns <- c:
	case <-f.closed:
		c.Close()
	}
}

// makeRoom closes the connection whose client is waited for since longest, if all places are
// taken: at once, or when the client has had its time.
func (f *funnel) makeRoom() {
	f.mu.Lock()
	var leaves *guest
	if i := slices.IndexFunc(f.guests, func(c *guest) bool { return !c.busy }); i >= 0 && len(f.guests) >= f.most {
		if left := f.grace - time.Since(f.guests[i].since); left > 0 {
			time.AfterFunc(left, f.makeRoom)
		} else {
			leaves = f.guests[i]
			leaves.gone = true
			f.guests = slices.Delete(f.guests, i, i+1)
		}
	}
	f.mu.Unlock()
	if leaves != nil {
		leaves.Close()
	}
}

// Accept returns the next connection that was put.
func (f *funnel) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

// Close has nothing accepted any more.
func (f *funnel) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

// Addr is there for [net.Listener].
func (f *funnel) Addr() net.Addr { return &net.UnixAddr{Name: "admin", Net: "unix"} }

// A guest is a connection of a funnel, which tells of its end.
type guest struct {
	net.Conn
	funnel  *funnel
	release func()

	// Guarded by the funnel's mu:
	since time.Time // its client is waited for, unless it is busy
	busy  bool      // from when its request was read until the answer is written
	gone  bool
}

// Close closes the connection.
func (c *guest) Close() error {
	defer c.release()
	f := c.funnel
	f.mu.Lock()
	c.gone = true
	f.guests = slices.DeleteFunc(f.guests, func(other *guest) bool { return other == c })
	f.mu.Unlock()
	return c.Conn.Close()
}

// begin begins with a request. It reports false if the connection was closed before, so that
// nothing is done of which nobody would be told.
func (c *guest) begin() bool {
	c.funnel.mu.Lock()
	defer c.funnel.mu.Unlock()
	c.busy = !c.gone
	return c.busy
}

// answer has the client waited for again: it is to read the answer now.
func (c *guest) answer() {
	f := c.funnel
	f.mu.Lock()
	if !c.busy {
		f.mu.Unlock()
		return
	}
	c.busy, c.since = false, time.Now()
	if i := slices.Index(f.guests, c); i >= 0 {
		f.guests = append(slices.Delete(f.guests, i, i+1), c)
	}
	f.mu.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(writeTime)) // it may be closed
	f.makeRoom()
}

// guestKey is under what a request's context has its guest.
type guestKey struct{}

func withGuest(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, guestKey{}, conn)
}

// welcomed has requests answered on connections that are still there. No request has a
// body: one that is announced is not waited for before the answer, and after it only as long
// as anything is.
func welcomed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(guestKey{}).(*guest)
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

// An answerWriter writes an answer, for which the client is waited for.
type answerWriter struct {
	http.ResponseWriter
	guest *guest
}

func (w answerWriter) Write(p []byte) (int, error) {
	w.guest.answer()
	return w.ResponseWriter.Write(p)
}
