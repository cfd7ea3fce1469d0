package filters_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/oracle"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
	"github.com/penstock/penstock/proxy/internal/wasm"
	"github.com/penstock/penstock/proxy/server"
)

// cut passes a text in pieces of which next returns the lengths, and returns what has come out.
func (s *stream) cut(text string, next func() int) string {
	s.t.Helper()
	s.out.Reset()
	for text != "" {
		n := min(next(), len(text))
		s.put(text[:n])
		text = text[n:]
	}
	return s.out.String()
}

// TestSplitAtAnyByte: a text that is masked is masked alike if it comes in two pieces, or in many of any size. Behind a line feed nothing is held
// back, so one stream has them all.
func TestSplitAtAnyByte(t *testing.T) {
	t.Parallel()
	software.Long(t, "filters that the Go compiler makes")
	s := newStream(t, rewriter(t, build(t, "mask"), oracle.All))
	text := oracle.Split + "\n"
	want := oracle.Mask(oracle.All, text)
	if strings.Count(want, "*") < 90 {
		t.Fatal(want)
	}
	for at := 1; at <= len(text); at++ {
		next := at
		if got := s.cut(text, func() int { defer func() { next = len(text) }(); return next }); got != want {
			t.Fatalf("split at %d it is\n%q, want\n%q", at, got, want)
		}
		if got := s.cut(text, func() int { return at }); got != want {
			t.Fatalf("in pieces of %d it is\n%q, want\n%q", at, got, want)
		}
	}
	s.end()
}

// TestAsTheOracle: whatever the text and however it is cut, the result is that of the plainest implementation.
func TestAsTheOracle(t *testing.T) {
	t.Parallel()
	software.Long(t, "filters that the Go compiler makes")
	s, r := newStream(t, rewriter(t, build(t, "mask"), oracle.All, compiled)), rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		text, most := oracle.Text(r)+"\n", 1+r.IntN(30)
		want := oracle.Mask(oracle.All, text)
		if got := s.cut(text, func() int { return 1 + r.IntN(most) }); got != want {
			t.Fatalf("%q is\n%q, want\n%q", text, got, want)
		}
	}
	s.end()
}

// TestMask: in a load balancer the module masks the bytes of either direction. A session keeps the masks with which it began, and at its end a
// line of the log says what was masked, with the session's ID. One whose module runs for too long is reset, and no byte goes on that was not
// looked at.
func TestMask(t *testing.T) {
	t.Parallel()
	software.Long(t, "filters that the Go compiler makes")
	const head = `
session_log: {to: sessions.log}
listeners:
  - {name: up, bind: "127.0.0.1:0", upstream: u, rewrite: {direction: up, wasm: mask.wasm, memory: 8MiB, timeout: 10s, hold: 1m, config: "card %s"}}
  - {name: down, bind: "127.0.0.1:0", upstream: u, rewrite: {direction: down, wasm: mask.wasm, memory: 8MiB, timeout: 10s, hold: 1m, config: card}}
  - {name: slow, bind: "127.0.0.1:0", upstream: u, rewrite: {direction: up, wasm: mask.wasm, memory: 8MiB, timeout: 100us, spare: 0, config: card}}
upstreams: [{name: u, endpoints: [%q], health_check: off}]`
	echo := sockets.Server(t, sockets.Echo)
	r := loadbalancer.Start(t, fmt.Sprintf(head, "", echo), "mask.wasm", string(build(t, "mask")))
	dial := func(listener string) *net.TCPConn {
		c, err := net.Dial("tcp", r.At(listener))
		must(t, err)
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		return c.(*net.TCPConn)
	}
	ask := func(c net.Conn, text, want string) {
		t.Helper()
		for i := range text {
			if _, err := io.WriteString(c, text[i:i+1]); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]byte, len(want))
		if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Fatalf("%q, %v, want %q", got[:n], err, want)
		}
	}
	const text, cards = "pay 4111 1111 1111 1111 for joe@example.com\n", "pay **** **** **** 1111 for joe@example.com\n"
	before := dial("up")
	ask(before, text, cards)
	ask(dial("down"), text, cards)
	r.Reload(fmt.Sprintf(head, "email", echo))
	ask(before, text, cards)
	after := dial("up")
	ask(after, text, "pay **** **** **** 1111 for ***@*******.***\n")
	before.Close()
	after.Close()
	r.Logs("rewrite: masked card=2 session=", "listener=up", "module=mask")
	r.Logs("rewrite: masked card=1 email=1 session=")
	id := regexp.MustCompile(`masked card=2 session=([0-9a-f]{32})`).FindStringSubmatch(r.Log.String())
	r.Until("the session log has the session", func() bool {
		b, err := os.ReadFile(filepath.Join(r.Dir, "sessions.log"))
		return err == nil && strings.Contains(string(b), id[1])
	})

	slow, wrote := dial("slow"), make(chan error, 1)
	go func() { // on a busy machine many calls end before they are seen to be late
		for all := strings.Repeat(text, 1<<15); ; {
			if _, err := io.WriteString(slow, all); err != nil {
				wrote <- err
				return
			}
		}
	}()
	var err error
	for lines, line := bufio.NewReader(slow), ""; err == nil; {
		if line, err = lines.ReadString('\n'); strings.Contains(line, "4111") {
			t.Errorf("%.100q is not masked", line)
		}
	}
	if err = errors.Join(err, <-wrote); !errors.Is(err, syscall.ECONNRESET) { // which a socket reports once
		t.Error(err)
	}
	r.Until("it is counted", func() bool { return r.Listener("slow").Rewrites.Reset["timeout"] == 1 })
}

// maskable is prose with a little of everything, and digits.
var maskable = strings.Repeat("The quick brown fox (no. 4711) jumps over the lazy dog at 12:30:59.123; see https://example.com/a?b=1. ", 30) +
	"4111 1111 1111 1111 joe@example.com Bearer abcdefghijk "

// BenchmarkMask: the module of examples/filters/mask, with card, token and email. chunk is of the module alone, in chunks of 16 KiB; bulk and messages
// go through a load balancer, with it and without a rewrite: 8 connections that have 64 KiB at a time echoed, 16 of them on the way, and 256 that have lines of 64 bytes echoed.
// start is how long an instance takes to begin.
func BenchmarkMask(b *testing.B) {
	const masks = "card token email"
	code := build(b, "mask")
	b.Run("chunk", func(b *testing.B) {
		s := newStream(b, rewriter(b, code, masks, compiled))
		text := strings.Repeat(maskable, 16<<10/len(maskable)+1)[:16<<10]
		b.SetBytes(int64(len(text)))
		before := cpuTime(b)
		for b.Loop() {
			s.out.Reset()
			s.put(text)
		}
		b.ReportMetric(float64(len(text))*float64(b.N)/1e6/(cpuTime(b)-before).Seconds(), "MB/cpu-s")
		s.end()
	})
	b.Run("start", func(b *testing.B) {
		r := rewriter(b, code, masks, compiled)
		for b.Loop() {
			s := newStream(b, r)
			s.put("x\n")
			s.end()
		}
	})
	for _, rewrite := range []string{"none", "mask"} {
		addr := masked(b, code, rewrite, masks)
		bulk, few := []byte(strings.Repeat(maskable, 64<<10/len(maskable))), connected(b, 8, addr)
		b.Run("bulk/"+rewrite, func(b *testing.B) {
			b.SetBytes(int64(len(bulk)))
			echoed(b, few, bulk, 16)
		})
		message, many := fmt.Appendf(nil, "%-63s\n", "GET user:4711 joe@example.com"), connected(b, 256, addr)
		b.Run("messages/"+rewrite, func(b *testing.B) {
			took := echoed(b, many, message, 1)
			b.ReportMetric(float64(b.N)/took.Seconds(), "messages/s")
		})
	}
}

// cpuTime is the time that this process has had a processor, which other work of the machine changes little.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// masked has a load balancer mask the bytes of clients, or not, until the benchmark ends, and returns its address and the endpoint's server.
func masked(b *testing.B, code []byte, rewrite, masks string) (addr string) {
	b.Helper()
	dir := b.TempDir()
	must(b, os.WriteFile(filepath.Join(dir, "mask.wasm"), code, 0o600))
	addr = "unix:" + filepath.Join(sockets.Dir(b), "l")
	text := fmt.Sprintf(`
listeners: [{name: l, bind: %q, upstream: u%s}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`, addr, map[string]string{
		"none": "", "mask": fmt.Sprintf(", rewrite: {direction: up, wasm: mask.wasm, memory: 8MiB, timeout: 10s, instances: 300, config: %q}", masks),
	}[rewrite], sockets.Server(b, sockets.Echo))
	path := filepath.Join(dir, "p.yaml")
	must(b, os.WriteFile(path, []byte(text), 0o600))
	cfg, problems := config.Load(path, os.LookupEnv)
	if len(problems) > 0 {
		b.Fatal(problems)
	}
	s, err := server.Open(context.Background(), cfg, server.Options{Loops: 2, MaxConnections: 1000, Log: slog.New(slog.DiscardHandler)})
	must(b, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	b.Cleanup(func() { stop(); <-served })
	if rewrite == "mask" {
		condition.Await(b, "the module is compiled", func() bool { return s.Status().Listeners[0].Rewrites.Modules[0].Engine == wasm.Compiler })
	}
	return strings.TrimPrefix(addr, "unix:")
}

// connected returns several clients at an address, each after its first message.
func connected(b *testing.B, n int, addr string) (clients []net.Conn) {
	b.Helper()
	for range n {
		c, err := net.Dial("unix", addr)
		must(b, err)
		b.Cleanup(func() { c.Close() })
		clients = append(clients, c)
	}
	for _, c := range clients {
		_, _ = io.WriteString(c, "x\n")
	}
	for _, c := range clients {
		if _, err := io.ReadFull(c, make([]byte, 2)); err != nil {
			b.Fatal(err)
		}
	}
	return clients
}

// echoed has clients send b.N messages together, each as many as window says before it has the first one's echo, and returns the time until
// the last one's.
func echoed(b *testing.B, clients []net.Conn, message []byte, window int) time.Duration {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	var done sync.WaitGroup
	began := time.Now()
	for _, c := range clients {
		sent := make(chan struct{}, window)
		done.Go(func() {
			defer close(sent)
			for left.Add(-1) >= 0 {
				sent <- struct{}{}
				if _, err := c.Write(message); err != nil {
					b.Error(err)
				}
			}
		})
		done.Go(func() {
			answer := make([]byte, len(message))
			for range sent {
				if _, err := io.ReadFull(c, answer); err != nil {
					b.Error(err)
				}
			}
		})
	}
	done.Wait()
	return time.Since(began)
}
