package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A rig is a load balancer that serves, until the end of the test.
type rig struct{ *loadbalancer.Instance }

// DrainListener, ReadyListener, SetSplit and Undeny return the errors of the server's alone.
func (r *rig) DrainListener(name, by string) error {
	_, err := r.Server.DrainListener(name, by)
	return err
}

func (r *rig) ReadyListener(ctx context.Context, name, by string) error {
	_, err := r.Server.ReadyListener(ctx, name, by)
	return err
}

func (r *rig) SetSplit(listener string, route int, percent map[string]float64, by string) error {
	_, err := r.Server.SetSplit(listener, route, percent, by)
	return err
}

func (r *rig) Undeny(source, listener, by string) error {
	_, err := r.Server.Undeny(source, listener, by)
	return err
}

// start has a load balancer serve a configuration.
func start(t *testing.T, text string, files ...string) *rig {
	t.Helper()
	return &rig{loadbalancer.Start(t, text, files...)}
}

// startWith is start with a maximum number of connections.
func startWith(t *testing.T, connections int, text string, files ...string) *rig {
	t.Helper()
	return &rig{loadbalancer.Setting{Clients: connections}.Start(t, text, files...)}
}

// startUpstream is start with the listener l before one upstream, which is u.
func startUpstream(t *testing.T, upstream string, args ...any) *rig {
	t.Helper()
	return start(t, fmt.Sprintf("listeners: [{name: l, bind: \"127.0.0.1:0\", upstream: u}]\nupstreams: [{name: u, "+upstream+"}]", args...))
}

// named is a server that sends its name, and then echoes.
func named(t *testing.T, name string) string {
	return sockets.Server(t, func(c net.Conn) {
		fmt.Fprintf(c, "%s\n", name)
		sockets.Echo(c)
	})
}

// client is a connection with a deadline.
func client(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	c := sockets.Dial(t, address)
	must(t, c.SetDeadline(time.Now().Add(condition.Patience)))
	return c
}

// line reads a client's bytes up to the end of the line.
func line(t *testing.T, c net.Conn) string {
	t.Helper()
	s, err := sockets.ReadLine(c)
	if err != nil {
		t.Fatalf("after %q: %v", s, err)
	}
	return s
}

// hears expects a line.
func hears(t *testing.T, c net.Conn, want string) {
	t.Helper()
	if got := line(t, c); got != want {
		t.Errorf("the client gets %q, want %q", got, want)
	}
}

// whose returns the name of the server that a new client of an address gets.
func whose(t *testing.T, address string) string {
	t.Helper()
	c := client(t, address)
	defer c.Close()
	return line(t, c)
}

// servedBy fails the test unless a new client of an address gets the server of a name.
func servedBy(t *testing.T, address, name string) {
	t.Helper()
	if got := whose(t, address); got != name {
		t.Errorf("a client gets to %q, want %s", got, name)
	}
}

// dialFrom is client from another address.
func dialFrom(t *testing.T, ip, address string) *net.TCPConn {
	t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Timeout: condition.Patience}).Dial("tcp", address)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(condition.Patience))
	return c.(*net.TCPConn)
}

// from is dialFrom with the last byte of 127.0.1.0/24.
func from(t *testing.T, source byte, address string) net.Conn {
	t.Helper()
	return dialFrom(t, net.IPv4(127, 0, 1, source).String(), address)
}

// dialUnix connects a client of a unix socket for the duration of the test.
func dialUnix(t *testing.T, path string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("unix", path, condition.Patience)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(condition.Patience)))
	return c
}

// pairOf is a certificate with its key.
func pairOf(t testing.TB, cert, key string) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	must(t, err)
	return pair
}

// answering is a server that reads pieces of up to 64 bytes, and goes on for as long as answer says so.
func answering(t *testing.T, answer func(c *net.TCPConn, piece []byte) bool) string {
	return sockets.Server(t, func(c net.Conn) {
		b := make([]byte, 64)
		for {
			n, err := c.Read(b)
			if err != nil || !answer(c.(*net.TCPConn), b[:n]) {
				return
			}
		}
	})
}

// echoPiece answers a piece with itself.
func echoPiece(c *net.TCPConn, piece []byte) bool {
	_, err := c.Write(piece)
	return err == nil
}

// must ends the test with an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// isReset fails the test unless a connection is reset before another byte.
func isReset(t *testing.T, c net.Conn) {
	t.Helper()
	if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
}

// echoes fails the test unless a connection still echoes.
func echoes(t *testing.T, c net.Conn, text string) {
	t.Helper()
	sends(t, c, text)
	receives(t, c, text)
}

// refused fails the test unless a new client is reset. The reset may come before connect returns.
func refused(t *testing.T, address string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, condition.Patience)
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
}

// gone returns the error with which a connection ends that is expected to end.
func gone(t *testing.T, c net.Conn) error {
	t.Helper()
	_, err := c.Read(make([]byte, 1))
	if err == nil {
		t.Fatal("a byte came in place of the end")
	}
	return err
}

var errTimeout = os.ErrDeadlineExceeded

// descriptors returns how many descriptors the process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// A clock stands still: a timer's function runs when the test declares its time over.
type clock struct {
	t       *testing.T
	set     chan *alarm
	ringing chan *alarm // holds the alarm that rings; the alarms it sets follow it
}

// An alarm is one timer and its function.
type alarm struct {
	*time.Timer // never fires; stopped when the function is no longer to run
	of          *clock
	after       time.Duration
	ring        func()
	then        []*alarm // the alarms it has set
}

// stopClock puts a load balancer's drain timers under a test's control from now on.
func stopClock(r *rig) *clock {
	c := &clock{t: r.T, set: make(chan *alarm, 100), ringing: make(chan *alarm, 1)}
	r.SetAfter(func(d time.Duration, f func()) *time.Timer {
		a := &alarm{Timer: time.AfterFunc(1000*time.Hour, func() {}), of: c, after: d, ring: f}
		select {
		case by := <-c.ringing:
			by.then = append(by.then, a)
			c.ringing <- by
		default:
			c.set <- a
		}
		return a.Timer
	})
	return c
}

// next waits for an alarm to be set. It must be the first step of a drain within d.
func (c *clock) next(d time.Duration) *alarm {
	c.t.Helper()
	return c.any(worker.NewSpread(d).First)
}

// any waits for an alarm to be set. It must be set for one of these times.
func (c *clock) any(times ...time.Duration) *alarm {
	c.t.Helper()
	select {
	case a := <-c.set:
		if !slices.Contains(times, a.after) {
			c.t.Fatalf("a timer is set for %v, want one of %v", a.after, times)
		}
		return a
	case <-time.After(condition.Patience):
		c.t.Fatal("no timer is set")
		return nil
	}
}

// step declares the alarm's time over and returns the alarms it sets; ok is false if the alarm
// had been stopped.
func (a *alarm) step() (then []*alarm, ok bool) {
	if !a.Stop() {
		return nil, false
	}
	a.of.ringing <- a
	a.ring()
	<-a.of.ringing
	return a.then, true
}

// over declares the time of the alarm, and of all alarms set because of it, over. It reports
// whether the alarm was still active.
func (a *alarm) over() bool {
	then, ok := a.step()
	for _, next := range then {
		next.over()
	}
	return ok
}
