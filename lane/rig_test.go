package lane_test

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/lane"
)

// alone reports whether the test goes on, in a child process with its own network namespace, beside other tests. It skips
// the test for users that may not open a lane, but never for root.
func alone(t *testing.T) bool {
	t.Helper()
	t.Parallel()
	permitted(t)
	return netns.Alone(t)
}

// permitted skips the test for an ordinary user without the necessary rights. For root it fails the test
// instead.
func permitted(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	var missing *lane.Unavailable
	if err := lane.Probe(); errors.As(err, &missing) {
		t.Skip("no lane for an ordinary user:", err)
	} else if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, devices ...string) *lane.Lane {
	t.Helper()
	l := must.Get(lane.Open(lane.Config{Devices: devices, Sessions: 256, Linger: 300 * time.Millisecond}))(t)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// A pair is a session and its two ends.
type pair struct {
	client, server *net.TCPConn
	sent           *[2]uint64 // bytes by the client and by the server
	*lane.Session
}

// joined connects a client to a proxy and the proxy to a server, and joins the two connections.
func joined(t testing.TB, l *lane.Lane, network, address string) pair {
	t.Helper()
	at := must.Get(net.Listen(network, address))(t)
	defer at.Close()
	return joinedTo(t, l, at)
}

// joinedTo is joined with a listener for the proxy and the server.
func joinedTo(t testing.TB, l *lane.Lane, at net.Listener) pair {
	t.Helper()
	client, a, b, server := legs(t, at)
	return join(t, l, client, a, b, server)
}

// connected makes a connection to a listener.
func connected(t testing.TB, at net.Listener) (near, far *net.TCPConn) {
	t.Helper()
	c := must.Get(net.Dial(at.Addr().Network(), at.Addr().String()))(t)
	s := must.Get(at.Accept())(t)
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// legs makes the two connections of a session. The listener accepts for the proxy and for the server; a and b
// are the proxy's ends.
func legs(t testing.TB, at net.Listener) (client, a, b, server *net.TCPConn) {
	t.Helper()
	client, a = connected(t, at)
	b, server = connected(t, at)
	limited(t, client, server)
	return client, a, b, server
}

// limited closes connections at the end of the test, and sets a deadline for them.
func limited(t testing.TB, all ...*net.TCPConn) {
	t.Helper()
	for _, c := range all {
		t.Cleanup(func() { c.Close() })
		must.Do(t, c.SetDeadline(time.Now().Add(condition.Patience)))
	}
}

// join joins connections.
func join(t testing.TB, l *lane.Lane, client, a, b, server *net.TCPConn) pair {
	t.Helper()
	limited(t, client, server)
	s := must.Get(l.Join(a, b, nil))(t)
	return pair{client, server, new([2]uint64), s}
}

func TestMain(m *testing.M) {
	victim()
	stepper()
	netns.Main()
	leak.Main(m)
}
