package uring

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/loop"
)

// ways are those of BenchmarkEcho and BenchmarkAccept.
var ways = []struct {
	name string
	way
}{
	{"poll", way{poll: true, flags: Deferred}},
	{"recv", way{flags: Deferred}},
	{"recv-fixed-files", way{fixed: true, flags: Deferred}},
	{"registered-memory", way{memory: true, flags: Deferred}},
	{"send-zc", way{zc: true, flags: Deferred}},
	{"sqpoll", way{flags: Polled}},
}

// BenchmarkEcho echoes 64 B over 64 connections, BenchmarkAccept over connections that have one message each: by
// package loop and by a ring in turn, with the same load from another process. It reports the median of the ratios
// of the ring to the loop: of the rate, of p99, and of the server's CPU time for each message. An iteration is one
// pair.
func BenchmarkEcho(b *testing.B) { compare(b, "echo") }

func BenchmarkAccept(b *testing.B) { compare(b, "accept") }

func compare(b *testing.B, workload string) {
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			var rates, tails, cpus []float64
			for round := 0; b.Loop(); round++ {
				var of [2]measured
				for i := range of {
					if (i+round)%2 == 0 {
						of[0] = measure(b, workload, nil)
					} else {
						of[1] = measure(b, workload, &w.way)
					}
				}
				rates = append(rates, float64(of[1].n)/float64(of[0].n))
				tails = append(tails, float64(of[1].p99)/float64(of[0].p99))
				cpus = append(cpus, of[1].cpu/of[0].cpu)
			}
			for _, m := range []struct {
				name string
				all  []float64
			}{{"rate", rates}, {"p99", tails}, {"cpu", cpus}} {
				slices.Sort(m.all)
				n := len(m.all)
				b.ReportMetric(m.all[n/2], m.name)
				b.Logf("%s %.2f (%.2f-%.2f)", m.name, m.all[n/2], m.all[n/4], m.all[3*n/4])
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

type measured struct {
	n   int
	p99 time.Duration
	cpu float64 // ns for each message
}

// measure runs a server under load: by package loop if w is nil.
func measure(b *testing.B, workload string, w *way) (m measured) {
	b.Helper()
	addr, fd := listen(b, "127.0.0.1")
	run, end := byLoop(b, fd, workload == "accept")
	if w != nil {
		s := newServer(b, fd, *w, workload == "accept")
		run, end = s.run, s.end
	}
	before := cpuTime()
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	out := load(b, workload, addr)
	used := cpuTime() - before
	end()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	if _, err := fmt.Sscanf(out, "load: %d %d", &m.n, &m.p99); err != nil {
		b.Fatal(err, out)
	}
	m.cpu = float64(used) / float64(m.n)
	return m
}

// listen makes a listening socket, which is closed when the test ends.
func listen(t testing.TB, address string) (addr string, fd int) {
	t.Helper()
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	ln := must.Get(config.Listen(context.Background(), "tcp", address+":0"))(t)
	addr = ln.Addr().String()
	fd = must.Get(loop.Take(ln.(*net.TCPListener)))(t)
	t.Cleanup(func() { sys.Close(fd) })
	return addr, fd
}

// load runs TestLoad in a process of its own, and returns its result.
func load(b *testing.B, workload, addr string) string {
	b.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestLoad$", "-test.v")
	cmd.Env = append(os.Environ(), "URING_LOAD="+workload+" "+addr)
	out, err := cmd.CombinedOutput()
	at := bytes.Index(out, []byte("load: "))
	if err != nil || at < 0 {
		b.Fatal(err, string(out))
	}
	return string(out[at:])
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// byLoop is a server on a loop, with the scheduling policy of a ring's thread. Connections that are left are closed when it ends.
func byLoop(b *testing.B, fd int, short bool) (run func() error, end func()) {
	l, err := loop.New(&loop.Config{KeepPolicy: true})
	if err != nil {
		b.Fatal(err)
	}
	a := &acceptor{l: l, short: short, conns: map[*conn]bool{}}
	if _, err := l.Listen(fd, &loop.ListenerConfig{Acceptor: a}); err != nil {
		b.Fatal(err)
	}
	run = func() error {
		err := l.Run()
		for c := range a.conns {
			c.close()
		}
		return err
	}
	b.Cleanup(func() { l.Close() })
	return run, l.Stop
}

type acceptor struct {
	l     *loop.Loop
	short bool
	conns map[*conn]bool
}

func (a *acceptor) Accepted(fd int, _ netip.AddrPort) {
	c := &conn{a: a, fd: fd}
	c.id, _ = a.l.Add(fd, 0, c)
	a.conns[c] = true
}
func (a *acceptor) Paused(error) {}

type conn struct {
	a  *acceptor
	fd int
	id loop.ID
}

func (c *conn) Ready(_ uint8, events loop.Events) {
	if events&^loop.Writable == 0 {
		return
	}
	var b [bufferSize]byte
	n, err := sys.Recv(c.fd, b[:], sys.MSG_DONTWAIT)
	if err == syscall.EAGAIN {
		return
	}
	if n > 0 {
		_, _ = sys.Send(c.fd, b[:n], sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
	}
	if n <= 0 || c.a.short {
		c.close()
	}
}

func (c *conn) close() {
	c.a.l.Drop(c.id)
	sys.Close(c.fd)
	delete(c.a.conns, c)
}

// TestLoad is the process of the load.
func TestLoad(t *testing.T) {
	workload, addr, ok := strings.Cut(os.Getenv("URING_LOAD"), " ")
	if !ok {
		t.Skip("for the benchmarks alone")
	}
	l := must.Get(loop.New(&loop.Config{KeepPolicy: true}))(t)
	defer l.Close()
	d := &demand{l: l, to: netip.MustParseAddrPort(addr), short: workload == "accept"}
	clients := make([]client, 64)
	for i := range clients {
		clients[i].of = d
		clients[i].connect()
	}
	var timer loop.Timer
	l.Arm(&timer, stopper{l}, 300*time.Millisecond)
	must.Do(t, l.Run())
	for i := range clients {
		clients[i].dial.Cancel()
		clients[i].close()
	}
	slices.Sort(d.took)
	fmt.Printf("load: %d %d\n", len(d.took), d.took[len(d.took)*99/100])
}

type stopper struct{ l *loop.Loop }

func (s stopper) Expired(*loop.Timer) { s.l.Stop() }

type demand struct {
	l     *loop.Loop
	to    netip.AddrPort
	short bool // a connection for each message
	took  []time.Duration
}

type client struct {
	of   *demand
	dial loop.Dial
	fd   int // owned; -1 while it connects
	id   loop.ID
	at   time.Time
}

func (c *client) connect() {
	c.at, c.fd = time.Now(), -1
	c.of.l.Connect(&c.dial, 0, loop.Address{AddrPort: c.of.to}, nil, c)
}

func (c *client) Connected(_ *loop.Dial, fd int, id loop.ID, _ loop.Events, err error) {
	if err != nil {
		panic(err)
	}
	c.fd, c.id = fd, id
	c.of.l.Hand(id, c)
	if !c.of.short {
		c.at = time.Now()
	}
	c.send()
}

// close resets the connection, so that no port stays in TIME_WAIT.
func (c *client) close() {
	if c.fd < 0 {
		return
	}
	c.of.l.Drop(c.id)
	_ = sys.AbortOnClose(c.fd)
	sys.Close(c.fd)
	c.fd = -1
}

func (c *client) send() {
	var b [messageSize]byte
	_, _ = sys.Send(c.fd, b[:], sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
}

func (c *client) Ready(_ uint8, events loop.Events) {
	if events&^loop.Writable == 0 {
		return
	}
	var b [messageSize]byte
	if n, err := sys.Recv(c.fd, b[:], sys.MSG_DONTWAIT); err != nil || n != len(b) {
		return
	}
	now := time.Now()
	c.of.took = append(c.of.took, now.Sub(c.at))
	if c.of.short {
		c.close()
		c.connect()
		return
	}
	c.at = now
	c.send()
}
