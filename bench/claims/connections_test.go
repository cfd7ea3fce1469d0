package claims

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/cloudwego/netpoll"
	"github.com/panjf2000/gnet/v2"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
)

// childName is the first argument of this test's program when it is a server, or a part of package bench.
const childName = "penstock-claims-test"

func runPart(args []string) error {
	if args[0] == "part" {
		return bench.RunPart(context.Background(), args[1], args[2:], os.Stdin, os.Stdout)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the measurement is over
		os.Exit(0)
	}()
	for _, s := range echoServers {
		if s.name == args[0] {
			return s.serve(args[1])
		}
	}
	return fmt.Errorf("no server %q", args[0])
}

// echoServers are the compared servers: each sends back what it gets, on an address, for as long as its process lives.
var echoServers = []struct {
	name  string
	serve func(address string) error
}{
	{"threads", serveThreads},
	{"goroutines", serveGoroutines},
	{"coroutines of loops", func(address string) error { return serveLoops(address, &loop.Server{Handle: echoing}) }},
	{"coroutines that end", func(address string) error { return serveLoops(address, &loop.Server{Handle: echoOnce}) }},
	{"loops", func(address string) error { return serveLoops(address, &loop.Server{Handle: echoing, Callbacks: true}) }},
	{"gnet", serveGnet},
	{"netpoll", serveNetpoll},
}

func serveGoroutines(address string) error {
	return accept(address, func(c *net.TCPConn) {
		defer c.Close()
		buf := make([]byte, 4<<10)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			if _, err := c.Write(buf[:n]); err != nil {
				return
			}
		}
	})
}

// serveThreads has a thread for each connection, which blocks in recv(2). There are many more of Go's permits to run (Ps) than
// processors, so that it is the kernel that schedules the threads: with one for each processor, a thread that holds one keeps it.
func serveThreads(address string) error {
	debug.SetMaxThreads(1 << 22)
	runtime.GOMAXPROCS(256)
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer f.Close()
	for listening := int(f.Fd()); ; { // blocking, as the accepted ones are
		fd, err := sys.Accept4(listening, sys.SOCK_CLOEXEC)
		if err != nil {
			return err
		}
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			defer sys.Close(fd)
			for buf := make([]byte, 4<<10); ; {
				n, err := sys.Recv(fd, buf, 0)
				if err != nil || n == 0 {
					return
				}
				if _, err := sys.Send(fd, buf[:n], sys.MSG_NOSIGNAL); err != nil {
					return
				}
			}
		}()
	}
}

func accept(address string, serve func(*net.TCPConn)) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go serve(c.(*net.TCPConn))
	}
}

// serveLoops has loops, one for each processor.
func serveLoops(address string, s *loop.Server) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return s.Serve(l)
}

// echoing is a handler that lives as long as its connection.
func echoing(c *loop.Conn) error {
	for {
		if len(c.Buffered()) == 0 {
			if err := c.More(); err != nil {
				return err
			}
		}
		if err := echoBuffered(c); err != nil {
			return err
		}
	}
}

// echoOnce is a handler that ends while there is nothing to do.
func echoOnce(c *loop.Conn) error {
	if err := echoBuffered(c); err != nil {
		return err
	}
	return loop.ErrIdle
}

func echoBuffered(c *loop.Conn) error {
	b, err := c.Next(len(c.Buffered()))
	if err == nil {
		_, err = c.Write(b)
	}
	return err
}

// gnetEcho has gnet's events.
type gnetEcho struct{ gnet.BuiltinEventEngine }

func (*gnetEcho) OnTraffic(c gnet.Conn) gnet.Action {
	b, err := c.Next(-1)
	if err == nil {
		_, err = c.Write(b)
	}
	if err != nil {
		return gnet.Close
	}
	return gnet.None
}

func serveGnet(address string) error {
	return gnet.Run(new(gnetEcho), "tcp://"+address, gnet.WithMulticore(true))
}

func serveNetpoll(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	events, err := netpoll.NewEventLoop(func(_ context.Context, c netpoll.Connection) error {
		r, w := c.Reader(), c.Writer()
		in, err := r.Next(r.Len()) // lent until Release
		if err != nil {
			return err
		}
		if _, err := w.WriteBinary(append([]byte(nil), in...)); err != nil {
			return err
		}
		return errors.Join(r.Release(), w.Flush())
	})
	if err != nil {
		return err
	}
	return events.Serve(l)
}

// measureConnections has 10,000 connections, all of them active.
func measureConnections(ctx context.Context) (Result, error) {
	return measureServers(ctx, 10_000, 3, time.Second)
}

// counted is the number of connections while calls are counted: strace stops a thread twice in each, and of more threads some would not
// get to accept before the kernel gives up on their connections.
const counted = 1000

// measureServers has each server echo 64 bytes on n connections for a time: each connection sends the next message when the last one
// is back. The load is this process, the servers are processes of their own. System calls are counted in trials of their own.
func measureServers(ctx context.Context, n, rounds int, window time.Duration) (r Result, err error) {
	group := process.NewGroup()
	defer group.Close()
	type served struct{ rate, mean, p99 report.Sample }
	all := make([]served, len(echoServers))
	for round := range rounds {
		for i := range echoServers {
			k := (i + round) % len(echoServers)
			t, err := measureServer(ctx, group, echoServers[k].name, n, window, false)
			if err != nil {
				return r, err
			}
			a := &all[k]
			a.rate, a.mean, a.p99 = append(a.rate, float64(t.Requests)/t.Elapsed.Seconds()), append(a.mean, t.Mean.Seconds()), append(a.p99, t.P99.Seconds())
		}
	}
	r = Result{{Name: "connections", Unit: Exact, Value: float64(n)}}
	for i := range echoServers {
		t, err := measureServer(ctx, group, echoServers[i].name, min(n, counted), 8*window, true) // longer: the calls of opening are among them
		if err != nil {
			return r, err
		}
		a, calls := &all[i], float64(t.calls)/float64(t.all)
		r = append(r, of(echoServers[i].name,
			spread("requests", Rate, a.rate), Figure{Name: "system calls", Unit: Rate, Value: calls * a.rate.Median()}, Figure{Name: "in a request", Unit: Number, Value: calls},
			spread("mean", Seconds, a.mean), spread("p99", Seconds, a.p99))...)
	}
	return r, nil
}

// An echoTrial is a trial of a server: requests and latencies of its window, and system calls of all of it.
type echoTrial struct {
	load.Result
	all   int64 // requests
	calls int64
}

func measureServer(ctx context.Context, group *process.Group, name string, n int, window time.Duration, count bool) (t echoTrial, err error) {
	if ctx.Err() != nil {
		return t, context.Cause(ctx)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return t, err
	}
	address := l.Addr().String()
	l.Close()
	child, err := group.Start(process.Spec{Name: name, Path: "/proc/self/exe", Args: []string{childName, name, address}})
	if err != nil {
		return t, err
	}
	defer child.Kill()
	if err := dialUntil(ctx, child, address); err != nil {
		return t, err
	}
	runner := load.NewRunner()
	runner.Grace = time.Minute // ten thousand threads take their time to end
	warmup := 300*time.Millisecond + time.Duration(n)*70*time.Microsecond
	plan := load.Plan{Workload: load.Echo, Address: address, Connections: n, Size: 64, Duration: warmup + window, Warmup: warmup}
	run := func() (err error) { t.Result, err = runner.Run(ctx, plan); return err }
	if count {
		t.calls, err = process.CountCalls(ctx, []int{child.Pid()}, run)
	} else {
		err = run()
	}
	t.all = t.Sent / 64
	select {
	case <-child.Done():
		err = errors.Join(child.Err(), err)
	default:
	}
	if err != nil {
		return t, fmt.Errorf("%s, %d connections, calls counted: %v: %w", name, n, count, err)
	}
	return t, nil
}

// dialUntil waits until a server accepts.
func dialUntil(ctx context.Context, child *process.Child, address string) error {
	for pause := time.Millisecond; ; pause *= 2 {
		c, err := net.Dial("tcp", address)
		if err == nil {
			return c.Close()
		}
		select {
		case <-time.After(pause):
		case <-child.Done():
			return child.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
