package lane_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane"
)

// BenchmarkEcho is 64 connections that send 64 bytes and wait for their echo, through the lane, through a proxy of two io.Copy, and without a proxy, where the programs are attached (direct) and
// where they are not (bare). ns/op is of one echo.
//
//	go test -c -o lane.test && unshare --net ./lane.test -test.run '^$' -test.bench . -test.count 6
func BenchmarkEcho(b *testing.B) {
	for name, connect := range map[string]func(*testing.B, *lane.Lane, net.Listener) pair{
		"lane":   func(b *testing.B, l *lane.Lane, at net.Listener) pair { return joinedTo(b, l, at) },
		"copy":   copied,
		"direct": direct,
		"bare":   direct,
	} {
		b.Run(name, func(b *testing.B) { benchmark(b, connect, 64, 64, name != "bare") })
	}
}

// BenchmarkBulk is one connection that sends 1 MiB and waits for a byte.
func BenchmarkBulk(b *testing.B) {
	for name, connect := range map[string]func(*testing.B, *lane.Lane, net.Listener) pair{
		"lane":   func(b *testing.B, l *lane.Lane, at net.Listener) pair { return joinedTo(b, l, at) },
		"copy":   copied,
		"direct": direct,
		"bare":   direct,
	} {
		b.Run(name, func(b *testing.B) { benchmark(b, connect, 1, 1<<20, name != "bare") })
	}
}

// copied is a session of a proxy of two io.Copy, which splice.
func copied(b *testing.B, _ *lane.Lane, at net.Listener) pair {
	client, near := direct1(b, at)
	far, server := direct1(b, at)
	for _, c := range [][2]*net.TCPConn{{near, far}, {far, near}} {
		go func() {
			_, _ = io.Copy(c[0], c[1])
			_ = c[0].CloseWrite()
		}()
	}
	b.Cleanup(func() { near.Close(); far.Close() })
	return pair{client: client, server: server}
}

func direct(b *testing.B, _ *lane.Lane, at net.Listener) pair {
	client, server := direct1(b, at)
	return pair{client: client, server: server}
}

func direct1(b *testing.B, at net.Listener) (client, server *net.TCPConn) {
	client, server = connected(b, at)
	b.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// fresh takes a network up whose loopback is down, as that of unshare --net is, so that no program is
// attached to devices of a machine. The error is of any other network.
var fresh = sync.OnceValue(func() error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	if lo.Flags&net.FlagUp != 0 {
		return errors.New("the loopback is up, so this is the network of a machine")
	}
	return sys.InterfaceUp("lo")
})

// benchmark has each of the connections send size bytes and wait for an answer: an echo, or a byte for
// what is larger than 64 KiB.
func benchmark(b *testing.B, connect func(*testing.B, *lane.Lane, net.Listener) pair, connections, size int, programs bool) {
	if err := fresh(); err != nil {
		b.Skip("run it by unshare --net:", err)
	}
	var l *lane.Lane
	if programs {
		l = open(b, "lo")
	}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer at.Close()
	answer := size
	if size > 1<<16 {
		answer = 1
	}
	var serving, asking sync.WaitGroup
	var clients []*net.TCPConn
	for range connections {
		p := connect(b, l, at)
		if p.Session != nil {
			p.talk(b)
		}
		clients = append(clients, p.client)
		serving.Go(func() {
			buf := make([]byte, size)
			for {
				if _, err := io.ReadFull(p.server, buf); err != nil {
					return
				}
				if _, err := p.server.Write(buf[:answer]); err != nil {
					return
				}
			}
		})
	}
	b.SetBytes(int64(size))
	cpu, err := sys.ProcessCPUTime(os.Getpid())
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for i, c := range clients {
		asking.Go(func() {
			buf := make([]byte, size)
			for n := i; n < b.N; n += connections {
				if _, err := c.Write(buf); err != nil {
					b.Error(err)
					return
				}
				if _, err := io.ReadFull(c, buf[:answer]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	asking.Wait()
	b.StopTimer()
	after, err := sys.ProcessCPUTime(os.Getpid())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(after-cpu)/float64(b.N), "cpu-ns/op") // of clients, servers and proxy together
	for _, c := range clients {
		c.Close()
	}
	serving.Wait()
}

// BenchmarkProbe is what the keepalive of a silent session costs each time: a probe to both endpoints, and their answers, which the program carries.
func BenchmarkProbe(b *testing.B) {
	l := open(b, "lo")
	p := joined(b, l, "tcp", "127.0.0.1:0")
	p.talk(b)
	for b.Loop() {
		if err := lane.ProbeBoth(p.Session); err != nil {
			b.Fatal(err)
		}
	}
}
