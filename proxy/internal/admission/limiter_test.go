package admission

import (
	"crypto/tls"
	"net"
	"net/netip"
	"sync/atomic"
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

// TestSilenceInHandshakes: with TLS a client is silent until its ClientHello was answered. From then on it may need the
// time of a long way.
func TestSilenceInHandshakes(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		client, conn := net.Pipe()
		read, done := make(chan struct{}), make(chan struct{})
		l, c := alone(&noted{conn, read})
		c.secured = true
		if answered {
			go func() { _, _ = client.Read(make([]byte, 1)) }()
			if _, err := c.Write([]byte{22}); err != nil {
				t.Fatal(err)
			}
		}
		go func() {
			defer close(done)
			_, _ = c.Read(make([]byte, 1))
		}()
		<-read
		l.makeRoom()
		if c.gone == answered {
			t.Errorf("a client whose ClientHello was answered: %v, leaves: %v", answered, c.gone)
		}
		client.Close()
		conn.Close()
		<-done
	}
}

// A remote is a connection from an address.
type remote struct {
	net.Conn
	addr   net.Addr
	closed atomic.Bool
}

func (r *remote) RemoteAddr() net.Addr { return r.addr }

func (r *remote) Close() error {
	r.closed.Store(true)
	return r.Conn.Close()
}

// TestFlood: when a network has ended many connections with TLS without a request, its newest ones make room for others, at
// once. Requests of clients that may make them are no flood.
func TestFlood(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		flood [2]string
		other string
		begun bool
	}{
		"IPv4":             {[2]string{"192.0.2.1", "::ffff:192.0.2.1"}, "192.0.2.2", false},
		"a /64":            {[2]string{"2001:db8::1", "2001:db8::2:0:0:1"}, "2001:db8:0:1::1", false},
		"with requests":    {[2]string{"192.0.2.1", "192.0.2.1"}, "192.0.2.2", true},
		"of many networks": {[2]string{"192.0.2.1", "192.0.2.3"}, "192.0.2.2", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := New(8, time.Second)
			l.grace, l.silent = time.Hour, time.Hour
			accepting := make(chan struct{})
			go func() {
				defer close(accepting)
				for {
					if _, err := l.Accept(); err != nil {
						return
					}
				}
			}()
			put := func(from string) *remote {
				conn, _ := net.Pipe()
				r := &remote{Conn: conn, addr: &net.TCPAddr{IP: net.ParseIP(from), Port: 1}}
				l.Put(r, new(tls.Config), Changes, nil, func() {})
				return r
			}
			n := floodSize
			if name == "of many networks" {
				n = 2*floodSize - 2
			}
			for i := range n {
				put(x.flood[i%2])
				c := l.conns[0]
				if x.begun {
					c.begin(func() {})
					if err := c.Begin(t.Context(), Short); err != nil {
						t.Fatal(err)
					}
				}
				c.Close()
			}
			var before []*remote
			for i := range l.most - 1 {
				before = append(before, put(x.flood[i%2]))
			}
			other := put(x.other)
			flood := name == "IPv4" || name == "a /64"
			for i, r := range before {
				if leaves := flood && i == len(before)-1; r.closed.Load() != leaves {
					t.Errorf("the connection %d of the flood leaves: %v", i, !leaves)
				}
			}
			if late := put(x.flood[0]); late.closed.Load() != flood {
				t.Errorf("a further connection of the flood leaves: %v", !flood)
			}
			if other.closed.Load() {
				t.Error("the client of another network leaves")
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			<-accepting
		})
	}
}

// TestFloodsAreForgotten: the count of a network falls with time, and at most so many networks are counted.
func TestFloodsAreForgotten(t *testing.T) {
	t.Parallel()
	var i idle
	from := netip.MustParseAddr("192.0.2.0")
	for range 40 {
		i.note(from)
	}
	i.halved = time.Now().Add(-3 * idleTime)
	if i.age(); i.ended[from] != 5 {
		t.Errorf("after three times %d of 40 connections count", i.ended[from])
	}
	i.halved = time.Time{}
	if i.age(); len(i.ended) != 0 {
		t.Errorf("there is a count for ever: %v", i.ended)
	}
	for range 3 * mostNetworks {
		from = from.Next()
		if i.note(from); len(i.ended) > mostNetworks {
			t.Fatalf("%d networks are counted", len(i.ended))
		}
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
