package load_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/origin"
	"github.com/penstock/penstock/bench/rival"
	"github.com/penstock/penstock/bench/service"
	"github.com/penstock/penstock/internal/testutil/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// serving runs a server on a port of its own until the test ends.
func serving(t *testing.T, serve func(context.Context, net.Listener) error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// through runs a proxy that hands each direction to pass, in front of an
// origin.
func through(t *testing.T, pass func(dst, src *net.TCPConn, toClient bool)) string {
	t.Helper()
	upstream := serving(t, origin.Serve)
	return serving(t, func(ctx context.Context, l net.Listener) error {
		return service.Serve(ctx, l, func(ctx context.Context, client *net.TCPConn) {
			c, err := net.Dial("tcp", upstream)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			endpoint := c.(*net.TCPConn)
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			back := make(chan struct{})
			go func() { defer close(back); pass(client, endpoint, true) }()
			pass(endpoint, client, false)
			<-back
		})
	})
}

// faithful passes on everything.
func faithful(dst, src *net.TCPConn, _ bool) {
	_, _ = io.Copy(dst, src)
	_ = dst.CloseWrite()
}

func plans(address string) []load.Plan {
	return []load.Plan{
		{Workload: load.Bulk, Address: address, Connections: 3, Duration: 30 * time.Millisecond},
		{Workload: load.Echo, Address: address, Connections: 3, Size: 64, Duration: 30 * time.Millisecond},
		{Workload: load.Echo, Address: address, Connections: 2, Size: 100_000, Duration: 30 * time.Millisecond},
	}
}

func TestRunThroughAProxy(t *testing.T) {
	upstream := serving(t, origin.Serve)
	address := serving(t, func(ctx context.Context, l net.Listener) error { return rival.Serve(ctx, l, upstream) })
	var runner load.Runner
	for _, p := range plans(address) {
		result, err := runner.Run(t.Context(), p)
		if err != nil {
			t.Fatalf("%s: %v", p.Workload, err)
		}
		if result.Elapsed < p.Duration {
			t.Errorf("%s: planned for %v, took %v", p.Workload, p.Duration, result.Elapsed)
		}
		if result.Received != runner.Received() {
			t.Errorf("%s: received %d bytes at the end, %d when asked", p.Workload, result.Received, runner.Received())
		}
		switch p.Workload {
		case load.Bulk:
			if result.Received == 0 || result.Requests != 0 || result.P50 != 0 {
				t.Errorf("bulk: %+v", result)
			}
		case load.Echo:
			want := result.Requests * int64(p.Size)
			if result.Requests == 0 || result.Received != want || result.Sent != want {
				t.Errorf("echo of %d: %+v", p.Size, result)
			}
			if result.P50 <= 0 || result.P99 < result.P50 {
				t.Errorf("echo of %d: p50 %v, p99 %v", p.Size, result.P50, result.P99)
			}
		}
	}
}

// change flips a bit of the 18th byte to the client.
func change(dst, src *net.TCPConn, toClient bool) {
	if toClient {
		b := make([]byte, 64)
		_, _ = io.ReadFull(src, b)
		b[17] ^= 0x20
		_, _ = dst.Write(b)
	}
	faithful(dst, src, toClient)
}

// loseFirst loses the first byte to the client.
func loseFirst(dst, src *net.TCPConn, toClient bool) {
	if toClient {
		_, _ = io.ReadFull(src, make([]byte, 1))
	}
	faithful(dst, src, toClient)
}

// loseLast loses the last bytes to the client, and ends as if nothing were
// missing.
func loseLast(dst, src *net.TCPConn, toClient bool) {
	if !toClient {
		faithful(dst, src, toClient)
		return
	}
	const lost = 1000
	b := make([]byte, lost+64<<10)
	for held := 0; ; {
		n, err := src.Read(b[held:])
		held += n
		if pass := held - lost; pass > 0 {
			_, _ = dst.Write(b[:pass])
			held = copy(b, b[pass:held])
		}
		if err != nil {
			_ = dst.CloseWrite()
			return
		}
	}
}

// endEarly ends both directions after ten bytes.
func endEarly(dst, src *net.TCPConn, _ bool) {
	_, _ = io.CopyN(dst, src, 10)
	_ = dst.CloseWrite()
}

// reset resets the client after ten bytes.
func reset(dst, src *net.TCPConn, toClient bool) {
	_, _ = io.CopyN(dst, src, 10)
	if toClient {
		_ = dst.SetLinger(0)
		_ = dst.Close()
	}
}

// Each of these proxies is at fault in its own way, and the load must notice.
func TestRunSeesFaults(t *testing.T) {
	for _, test := range []struct {
		name       string
		pass       func(dst, src *net.TCPConn, toClient bool)
		bulk, echo string // in the errors
	}{
		{"a changed byte", change, "not the content", "not the content"},
		{"a lost byte", loseFirst, "not the content", "timeout"},
		{"a lost end", loseLast, "end of the content", "timeout"},
		{"an early end", endEarly, "EOF", "EOF"},
		{"a reset", reset, "reset", "reset"},
	} {
		t.Run(test.name, func(t *testing.T) {
			address := through(t, test.pass)
			for _, p := range plans(address)[:2] {
				// Only where a timeout is what has to come is it short.
				runner := load.Runner{Grace: 30 * time.Second}
				if p.Workload == load.Echo && test.echo == "timeout" {
					runner.Grace = 300 * time.Millisecond
				}
				_, err := runner.Run(t.Context(), p)
				want := map[load.Workload]string{load.Bulk: test.bulk, load.Echo: test.echo}[p.Workload]
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: got %v, want %q", p.Workload, err, want)
				}
			}
		})
	}
}

func TestRunRefusesWrongPlans(t *testing.T) {
	for _, change := range []func(*load.Plan){
		func(p *load.Plan) { p.Workload = "chat" },
		func(p *load.Plan) { p.Connections = 0 },
		func(p *load.Plan) { p.Duration = 0 },
		func(p *load.Plan) { p.Size = 0 },
		func(p *load.Plan) { p.Size = 1 << 30 },
	} {
		p := plans("127.0.0.1:1")[1]
		change(&p)
		if _, err := new(load.Runner).Run(t.Context(), p); err == nil {
			t.Errorf("%+v was carried out", p)
		}
	}
}

func TestRunThroughNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	for _, p := range plans(l.Addr().String()) {
		if _, err := new(load.Runner).Run(t.Context(), p); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: got %v, want a refusal", p.Workload, err)
		}
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	address := through(t, faithful)
	for _, p := range plans(address) {
		p.Duration = time.Hour
		reason := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		var runner load.Runner
		done := make(chan error)
		go func() {
			_, err := runner.Run(ctx, p)
			done <- err
		}()
		for runner.Received() == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel(reason)
		if err := <-done; !errors.Is(err, reason) {
			t.Errorf("%s: got %v", p.Workload, err)
		}
	}
}
