package admission

import (
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/leak"
)

// alone returns a limiter of one connection, which waits since a minute ago.
func alone(conn net.Conn) (*Limiter, *Conn) {
	l := New(1, time.Second)
	l.grace = time.Hour
	c := &Conn{Conn: conn, limiter: l, release: func() {}, since: time.Now().Add(-time.Minute)}
	l.conns = append(l.conns, c)
	return l, c
}

// TestNobodyIsAnsweredWhoHasGone: a request on a connection that was closed to make room is not performed.
func TestNobodyIsAnsweredWhoHasGone(t *testing.T) {
	t.Parallel()
	conn, _ := net.Pipe()
	l, c := alone(conn)
	l.grace = 0
	l.makeRoom()
	if c.begin(func() {}) {
		t.Error("a request without a client is performed")
	}
}

// noted is a connection of which the first Read is noted.
type noted struct {
	net.Conn
	read chan struct{}
}

func (n *noted) Read(p []byte) (int, error) {
	close(n.read)
	return n.Conn.Read(p)
}

// TestRequestsThatHaveCome: a client whose request was read and is not begun yet, as on a busy machine, is not one that
// the server waits for, and keeps its place for longer than a silent client.
func TestRequestsThatHaveCome(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string]bool{"GET": true, "": false} {
		client, conn := net.Pipe()
		read, done := make(chan struct{}), make(chan struct{})
		l, c := alone(&noted{conn, read})
		go func() {
			defer close(done)
			_, _ = c.Read(make([]byte, 8))
		}()
		<-read
		if sent != "" {
			_, _ = client.Write([]byte(sent))
			<-done
		}
		l.makeRoom()
		if kept := !c.gone; kept != want {
			t.Errorf("a client that has sent %q keeps its place: %v", sent, kept)
		}
		client.Close()
		conn.Close()
		<-done
	}
}

// TestRanks: the places of one kind go to the greatest right, whoever came first, and a client of lesser right leaves for it.
func TestRanks(t *testing.T) {
	t.Parallel()
	l := New(16, time.Second)
	ask := func(rank Rank, kind Kind) (*Conn, error) {
		conn, other := net.Pipe()
		other.Close()
		c := &Conn{Conn: conn, limiter: l, release: func() {}, rank: rank}
		l.conns = append(l.conns, c)
		ended := make(chan struct{})
		c.begin(func() { close(ended) })
		return c, c.Begin(t.Context(), kind)
	}
	var lesser []*Conn
	for range l.requests(Reads) {
		c, err := ask(Reads, Look)
		if err != nil {
			t.Fatal(err)
		}
		lesser = append(lesser, c)
	}
	if _, err := ask(Reads, Look); err == nil {
		t.Error("one more look of equal right is begun")
	}
	if _, err := ask(Reads, Short); err != nil || lesser[0].running {
		t.Errorf("a short request of equal right: %v, the first look goes on: %v", err, lesser[0].running)
	}
	for range l.requests(Own) - 1 { // the short one goes on
		if _, err := ask(Own, Look); err != nil {
			t.Error(err)
		}
	}
	if _, err := ask(Changes, Short); err == nil {
		t.Error("a request of lesser right takes the place of a look of greater right")
	}
	if n := l.count(func(c *Conn) bool { return c.running }); n > l.requests(Own) {
		t.Errorf("%d requests are under way, of %d", n, l.requests(Own))
	}
}

func TestMain(m *testing.M) { leak.Main(m) }
