package load_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/rival"
	"github.com/penstock/penstock/bench/sink"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

func TestMain(m *testing.M) { leak.Main(m) }

// plenty is a limit for plans that end by themselves.
const plenty = 30 * time.Second

func sinking(t *testing.T) string {
	t.Helper()
	return sockets.Run(t, func(ctx context.Context, l *net.TCPListener) error { return sink.Serve(ctx, l, 1) })
}

// through runs a proxy in front of a sink; pass handles each direction.
func through(t *testing.T, pass func(dst, src *net.TCPConn, toClient bool)) string {
	t.Helper()
	upstream := sinking(t)
	return sockets.Run(t, func(ctx context.Context, l *net.TCPListener) error {
		return rival.Accept(ctx, l, func(ctx context.Context, client *net.TCPConn) {
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

// faithful forwards all bytes, and resets as well.
func faithful(dst, src *net.TCPConn, _ bool) {
	if _, err := io.Copy(dst, src); err != nil {
		for _, c := range []*net.TCPConn{dst, src} {
			_ = c.SetLinger(0)
			_ = c.Close()
		}
		return
	}
	_ = dst.CloseWrite()
}

func plans(address string) []load.Plan {
	const d = 30 * time.Millisecond
	return []load.Plan{
		{Workload: load.Bulk, Address: address, Connections: 3, Duration: d, Check: true},
		{Workload: load.Echo, Address: address, Connections: 3, Size: 64, Duration: d},
		{Workload: load.Bulk, Address: address, Connections: 3, Duration: d},
		{Workload: load.Echo, Address: address, Connections: 2, Size: 100_000, Duration: d},
		{Workload: load.Echo, Address: address, Connections: 40, Size: 1, Duration: d},
		{Workload: load.Connect, Address: address, Connections: 4, Duration: d},
	}
}

func TestRun(t *testing.T) {
	for name, address := range map[string]string{"direct": sinking(t), "through a proxy": through(t, faithful)} {
		t.Run(name, func(t *testing.T) {
			runner := load.NewRunner()
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
				checkResult(t, p, result)
			}
		})
	}
}

func checkResult(t *testing.T, p load.Plan, result load.Result) {
	t.Helper()
	switch p.Workload {
	case load.Bulk:
		if result.Received == 0 || result.Requests != 0 || result.P50 != 0 || result.Connections != 3 {
			t.Errorf("bulk: %+v", result)
		}
		return
	case load.Echo:
		want := result.Requests * int64(p.Size)
		if result.Requests == 0 || result.Received != want || result.Sent != want {
			t.Errorf("echo of %d: %+v", p.Size, result)
		}
	case load.Connect:
		want := result.Connections * load.ConnectSize
		if result.Connections < 4 || result.Received != want || result.Sent != want {
			t.Errorf("connect: %+v", result)
		}
	}
	if result.P50 <= 0 || result.P99 < result.P50 || result.Mean <= 0 {
		t.Errorf("%s of %d: p50 %v, p99 %v, mean %v", p.Workload, p.Size, result.P50, result.P99, result.Mean)
	}
}

// A message that completes in the warmup does not count, but its bytes do.
func TestAWarmupDoesNotCount(t *testing.T) {
	runner := load.NewRunner()
	var at int64 // bytes received at its end
	runner.Warm = func() { at = runner.Received() }
	const size, connections = 64, 4
	p := load.Plan{
		Workload: load.Echo, Address: sinking(t), Connections: connections, Size: size,
		Warmup: 500 * time.Millisecond, Duration: time.Second,
	}
	r := must.Get(runner.Run(t.Context(), p))(t)
	if r.Elapsed < 50*time.Millisecond || at == 0 || r.Requests == 0 {
		t.Errorf("%+v, %d bytes in the warmup", r, at)
	}
	// A part of a message may have come back by its end.
	if got := r.Received - at - r.Requests*size; got < -connections*size || got > connections*size {
		t.Errorf("received %d bytes after the warmup, of %d messages", r.Received-at, r.Requests)
	}
	p.Workload = load.Bulk
	var err error
	if r, err = runner.Run(t.Context(), p); err != nil || r.Warmup != at || at == 0 || r.Received <= at || r.Elapsed >= p.Duration {
		t.Errorf("bulk: %+v, %v, %d bytes in the warmup", r, err, at)
	}
	for _, wrong := range []load.Plan{
		{Workload: load.Echo, Connections: 1, Size: 1, Duration: 1, Warmup: 1},
		{Workload: load.Echo, Connections: 1, Size: 1, Duration: 1, Warmup: -1},
		{Workload: load.Connect, Connections: 1, Duration: 2, Warmup: 1},
		{Workload: load.Bulk, Connections: 1, Duration: 1, Warmup: 1},
	} {
		if _, err := runner.Run(t.Context(), wrong); err == nil || !strings.Contains(err.Error(), "warmup") {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

// idlePlan returns a plan that holds its connections until it is released.
func idlePlan(address string) load.Plan {
	return load.Plan{Workload: load.Idle, Address: address, Connections: 150}
}

func TestIdleHoldsUntilItIsReleased(t *testing.T) {
	runner, held := load.NewRunner(), make(chan struct{})
	runner.Hold = func() { close(held) }
	done := make(chan error, 1)
	var result load.Result
	go func() {
		var err error
		result, err = runner.Run(t.Context(), idlePlan(through(t, faithful)))
		done <- err
	}()
	select {
	case <-held:
	case err := <-done:
		t.Fatal("not held: ", err)
	}
	const want = 150 * load.IdleSize
	if got := runner.Received(); got != want {
		t.Errorf("received %d bytes before it is quiet, want %d", got, want)
	}
	runner.Release()
	if err := <-done; err != nil || result.Connections != 150 || result.Sent != want || result.Received != want {
		t.Errorf("got %+v, %v", result, err)
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

func loseFirst(dst, src *net.TCPConn, toClient bool) {
	if toClient {
		_, _ = io.ReadFull(src, make([]byte, 1))
	}
	faithful(dst, src, toClient)
}

// loseLast drops the last bytes to the client, and ends in order.
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
	if !toClient {
		faithful(dst, src, toClient)
		return
	}
	_, _ = io.CopyN(dst, src, 10)
	_ = dst.SetLinger(0)
	_ = dst.Close()
}

// silent reads all bytes and forwards none.
func silent(_, src *net.TCPConn, _ bool) { _, _ = io.Copy(io.Discard, src) }

// Each of these proxies has a fault of its own, and the load must notice it.
func TestRunSeesFaults(t *testing.T) {
	const stuck = "timeout"
	for _, test := range []struct {
		name                            string
		pass                            func(dst, src *net.TCPConn, toClient bool)
		bulk, echo, unchecked, connects string // in the errors; "" if the fault cannot be seen
	}{
		{"a changed byte", change, "not the content", "not the content", "", "not the content"},
		{"a lost byte", loseFirst, "not the content", "not the content", "the end of the content", "not the content"},
		{"a lost end", loseLast, "end of the content", stuck, "end of the content", "EOF"},
		{"an early end", endEarly, "EOF", "EOF", "EOF", "EOF"},
		{"a reset", reset, "reset", "reset", "reset", "reset"},
		{"silence", silent, stuck, stuck, stuck, stuck},
	} {
		t.Run(test.name, func(t *testing.T) {
			address := through(t, test.pass)
			all := plans(address)
			for i, want := range map[int]string{0: test.bulk, 1: test.echo, 2: test.unchecked, 5: test.connects} {
				if want == "" {
					continue
				}
				// The grace is short only if a timeout is expected.
				runner := load.NewRunner()
				if runner.Grace = plenty; want == stuck {
					runner.Grace = 200 * time.Millisecond
				}
				// A connection that ends before the proxy has begun does not meet the fault.
				var err error
				for d := 200 * time.Millisecond; err == nil && d < 20*time.Second; d *= 4 {
					all[i].Duration = d
					_, err = runner.Run(t.Context(), all[i])
				}
				if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), ", connection ") {
					t.Errorf("%s: got %v, want %q", all[i].Workload, err, want)
				}
			}
		})
	}
}

func TestIdleSeesFaults(t *testing.T) {
	for _, test := range []struct {
		name string
		pass func(dst, src *net.TCPConn, toClient bool)
		want string
	}{
		{"a changed byte", change, "not the content"},
		{"an early end", endEarly, "connection "}, // the first error varies
		{"a reset", reset, "connection "},
		{"silence", silent, "timeout"},
	} {
		runner := load.NewRunner()
		if runner.Grace = plenty; test.want == "timeout" {
			runner.Grace = 200 * time.Millisecond
		}
		if _, err := runner.Run(t.Context(), idlePlan(through(t, test.pass))); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
}

func TestServeHoldsAnIdlePlanUntilItsRelease(t *testing.T) {
	address := through(t, faithful)
	in, plan := io.Pipe()
	event, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- load.Serve(t.Context(), in, out) }()
	plans, events := json.NewEncoder(plan), json.NewDecoder(event)
	// A release without held connections does nothing.
	for _, p := range []load.Plan{{Release: true}, idlePlan(address)} {
		must.Do(t, plans.Encode(p))
	}
	next := func() (e load.Event) {
		if err := events.Decode(&e); err != nil || e.Error != "" {
			t.Fatal(err, e.Error)
		}
		return e
	}
	e := next()
	for !e.Holding {
		e = next()
	}
	must.Do(t, plans.Encode(load.Plan{Release: true}))
	if e = next(); e.Result == nil || e.Result.Connections != 150 {
		t.Errorf("after the release: %+v", e)
	}
	_ = plan.Close()
	must.Do(t, <-done)
}
