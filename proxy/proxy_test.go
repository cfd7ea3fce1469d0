//go:build linux

package proxy_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/socket"
	"github.com/penstock/penstock/proxy/upstream"
	"github.com/penstock/penstock/relay"
)

// refusing returns an address on which nobody listens.
func refusing(t *testing.T) string {
	t.Helper()
	return "unix:" + t.TempDir() + "/nobody"
}

// abstract is the address of an abstract unix socket that is this process's alone.
func abstract(name string) string { return fmt.Sprintf("unix:@penstock-%s-%d", name, os.Getpid()) }

func TestBytesGoThrough(t *testing.T) { eachDriver(t, testBytesGoThrough) }

func testBytesGoThrough(t *testing.T) {
	dir := t.TempDir()
	for _, engine := range []relay.Engine{relay.EngineAuto, relay.EngineSplice, relay.EngineCopy} {
		for _, listen := range []string{"127.0.0.1:0", "[::1]:0", "unix:" + dir + "/listen"} {
			for _, to := range []string{"127.0.0.1:0", abstract("endpoint")} {
				name := engine.String() + " " + strings.ReplaceAll(listen+" to "+to, "/", "_")
				t.Run(name, func(t *testing.T) {
					r := serve(t, proxy.Config{
						Engine: engine, Listen: []socket.Address{parse(t, listen)},
					}, endpoint(t, to, echo))
					conn := r.dial(t)
					const size = 3 << 20
					want, got := sha256.New(), sha256.New()
					var send sync.WaitGroup
					send.Go(func() {
						source := io.LimitReader(rand.NewChaCha8([32]byte{}), size)
						io.Copy(conn, io.TeeReader(source, want))
						conn.(interface{ CloseWrite() error }).CloseWrite()
					})
					n, err := io.Copy(got, conn)
					send.Wait()
					if n != size || err != nil || [32]byte(got.Sum(nil)) != [32]byte(want.Sum(nil)) {
						t.Errorf("%d bytes came back: %v", n, err)
					}
					r.stop()
					if err := <-r.done; err != nil {
						t.Error(err)
					}
					sum := r.Summary()
					for _, moved := range []proxy.Moved{sum.Bytes.ClientToEndpoint, sum.Bytes.EndpointToClient} {
						if moved.Spliced+moved.Copied != size || engine == relay.EngineCopy && moved.Spliced != 0 {
							t.Errorf("the summary has %+v of %d bytes", moved, size)
						}
					}
				})
			}
		}
	}
}

func TestListensOnEveryAddress(t *testing.T) { eachDriver(t, testListensOnEveryAddress) }

func testListensOnEveryAddress(t *testing.T) {
	j, log := newJournal()
	r := serve(t, proxy.Config{
		Log: log, Listen: []socket.Address{parse(t, "127.0.0.1:0"), parse(t, "[::1]:0"), parse(t, abstract("listen"))},
	}, endpoint(t, "127.0.0.1:0", echo))
	for _, spec := range r.Addresses() {
		addr := parse(t, spec)
		conn, err := net.Dial(addr.Network, addr.Name)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		exchange(t, conn, "hello")
	}
	for end := time.Now().Add(time.Minute); len(j.find("listening")) < len(r.Addresses()) && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // who accepts need not have been logged yet
	}
	var logged []string
	for _, record := range j.find("listening") {
		logged = append(logged, attr(record, "address"))
	}
	if got, want := strings.Join(logged, " "), strings.Join(r.Addresses(), " "); got != want {
		t.Errorf("logged %s, want %s", got, want)
	}
}

func TestOpenLeavesNothingBehind(t *testing.T) { eachDriver(t, testOpenLeavesNothingBehind) }

func testOpenLeavesNothingBehind(t *testing.T) {
	taken := endpoint(t, "127.0.0.1:0", echo)
	before := leak.Take()
	_, err := proxy.Open(context.Background(), &proxy.Config{
		Loops:  loopsOf(t),
		Listen: []socket.Address{parse(t, "127.0.0.1:0"), parse(t, taken)},
		To:     []socket.Address{parse(t, "127.0.0.1:1")},
	})
	if !errors.Is(err, syscall.EADDRINUSE) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error is %v", err)
	}
	if left := leak.Take().Since(before); len(left) > 0 {
		t.Errorf("left open: %q", left)
	}
}

func TestOpenNeedsAddresses(t *testing.T) {
	one := []socket.Address{parse(t, "127.0.0.1:1")}
	for name, cfg := range map[string]proxy.Config{"listen": {To: one}, "to": {Listen: one}} {
		if _, err := proxy.Open(context.Background(), &cfg); !errors.Is(err, socket.ErrAddress) {
			t.Errorf("without %s the error is %v", name, err)
		}
	}
}

// A target that is down costs its connection only: that is reset, not closed as
// if there were nothing to say.
func TestTargetDown(t *testing.T) { eachDriver(t, testTargetDown) }

func testTargetDown(t *testing.T) {
	j, log := newJournal()
	target := "unix:" + t.TempDir() + "/s"
	up := endpoint(t, target, echo)
	r := serve(t, proxy.Config{Log: log}, up)
	old := r.dial(t)
	exchange(t, old, "before")

	down := serve(t, proxy.Config{Log: log}, refusing(t))
	for i := range 3 {
		conn, err := net.Dial("tcp", down.Addresses()[0])
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
			conn.Close()
		}
		if !errors.Is(err, syscall.ECONNRESET) { // which may come while it connects
			t.Errorf("client %d of a target that is down gets %v, want a reset", i, err)
		}
	}
	exchange(t, old, "after")
	down.stop()
	if err := <-down.done; err != nil {
		t.Error(err)
	}
	want := proxy.Connections{Accepted: 3, Refused: 3}
	if got := down.Summary().Connections; got != want {
		t.Errorf("connections are %+v, want %+v", got, want)
	}
	if told := j.find("target down"); len(told) != 1 || told[0].Level != slog.LevelWarn {
		t.Errorf("told %d times of the target that is down", len(told))
	}
	refused := int64(0)
	for _, line := range j.find("clients refused") {
		line.Attrs(func(a slog.Attr) bool {
			switch {
			case a.Key == "times":
				refused += a.Value.Int64()
			case a.Key == "reasons" && !strings.HasPrefix(a.Value.String(), "connection refused "):
				t.Errorf("they were refused for %v", a.Value)
			}
			return true
		})
	}
	if refused != 3 {
		t.Errorf("the log has %d clients refused, want 3", refused)
	}
}

// That this machine has no port left is not the target's fault.
func TestPortExhaustionIsToldAsSuch(t *testing.T) {
	if got := proxy.DownMessage(fmt.Errorf("x: %w", upstream.ErrPortsExhausted)); !strings.Contains(got, "ports are exhausted") {
		t.Errorf("told %q", got)
	}
	if got := proxy.DownMessage(syscall.ECONNREFUSED); got != "target down" {
		t.Errorf("told %q", got)
	}
}

func TestNextTargetWhenOneRefuses(t *testing.T) { eachDriver(t, testNextTargetWhenOneRefuses) }

func testNextTargetWhenOneRefuses(t *testing.T) {
	r := serve(t, proxy.Config{}, refusing(t), endpoint(t, "127.0.0.1:0", echo))
	for range 4 {
		conn := r.dial(t)
		exchange(t, conn, "hello")
		finish(t, conn)
	}
	if got := r.Summary().Connections; got.Refused != 0 || got.Accepted != 4 {
		t.Errorf("connections are %+v", got)
	}
}

func TestSessionsAreLoggedAtDebug(t *testing.T) { eachDriver(t, testSessionsAreLoggedAtDebug) }

func testSessionsAreLoggedAtDebug(t *testing.T) {
	j, log := newJournal()
	r := serve(t, proxy.Config{Log: log}, endpoint(t, "127.0.0.1:0", echo))
	conn := r.dial(t)
	exchange(t, conn, "hello")
	finish(t, conn)
	record := j.wait(t, "session ended")
	if record.Level != slog.LevelDebug || attr(record, "client") != conn.LocalAddr().String() || attr(record, "reason") != "eof" ||
		!strings.Contains(attr(record, "client_to_endpoint"), "copied=5") {
		t.Errorf("logged %v: %v %v %v", record.Level, attr(record, "client"), attr(record, "reason"), attr(record, "client_to_endpoint"))
	}
}

func TestAtTheLimitClientsWait(t *testing.T) { eachDriver(t, testAtTheLimitClientsWait) }

func testAtTheLimitClientsWait(t *testing.T) {
	j, log := newJournal()
	r := serve(t, proxy.Config{MaxConnections: 1, Log: log}, endpoint(t, "127.0.0.1:0", echo))
	first := r.dial(t)
	exchange(t, first, "first") // or another loop might have the second one served before it
	second := r.dial(t)
	if _, err := second.Write([]byte("second")); err != nil {
		t.Fatal(err)
	}
	if got := r.Summary().Connections; got.Accepted != 1 || got.Active != 1 {
		t.Errorf("connections are %+v, want one", got)
	}
	if got := attr(j.wait(t, "max-connections reached, further clients wait"), "max_connections"); got != "1" {
		t.Errorf("max_connections is %s", got)
	}
	finish(t, first)
	got := make([]byte, 6)
	if _, err := io.ReadFull(second, got); err != nil || string(got) != "second" {
		t.Errorf("got %q, %v", got, err)
	}
	finish(t, second)
	j.wait(t, "below max-connections again")
}
