package proxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/socket"
	"github.com/penstock/penstock/relay"
)

// leaveDescriptors lets this process open n more descriptors until undo.
func leaveDescriptors(t *testing.T, n int) (undo func()) {
	t.Helper()
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	highest := 0
	for fd := range leak.Take() {
		highest = max(highest, fd)
	}
	var fill []*os.File // the gaps below
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		fill = append(fill, f)
		if int(f.Fd()) > highest {
			highest = int(f.Fd())
			break
		}
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(highest + 1 + n), Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
		for _, f := range fill {
			f.Close()
		}
	}
}

// There are descriptors for a client and its acceptance, but the connection's
// acceptance by the target needs those of the idle pipes. (Of several loops each
// keeps a descriptor once it has been woken: how many are left is not known then.)
func TestIdlePipesMakeRoomForConnections(t *testing.T) {
	t.Run("goroutines", testIdlePipesMakeRoomForConnections)
	t.Run("1 loop", testIdlePipesMakeRoomForConnections)
}

func testIdlePipesMakeRoomForConnections(t *testing.T) {
	pipequota.Share(t)
	r := serve(t, proxy.Config{Engine: relay.EngineSplice}, endpoint(t, "127.0.0.1:0", echo))
	conn := r.dial(t)
	exchange(t, conn, string(make([]byte, 64<<10)))
	finish(t, conn)
	waitInactive(r) // the client may see the end before the pipes are given back
	if idle := r.Summary().Pipes.Idle; idle < 1 {
		t.Fatalf("%d pipes are idle", idle)
	}
	defer leaveDescriptors(t, 2)()
	exchange(t, r.dial(t), "hello")
	if got := r.Summary().Connections; got.Accepted != 2 || got.Refused != 0 {
		t.Errorf("connections are %+v", got)
	}
}

func waitInactive(r *running) {
	for r.Summary().Connections.Active > 0 {
		time.Sleep(time.Millisecond)
	}
}

// Nothing is idle: the client waits in the accept queue until somebody else's
// connection has ended.
func TestClientWaitsForADescriptor(t *testing.T) { eachDriver(t, testClientWaitsForADescriptor) }

func testClientWaitsForADescriptor(t *testing.T) {
	j, log := newJournal()
	r := serve(t, proxy.Config{Engine: relay.EngineCopy, Log: log}, endpoint(t, "127.0.0.1:0", echo))
	first := r.dial(t)
	exchange(t, first, "first")
	if n := r.Summary().AcceptPauses; n != 0 {
		t.Errorf("accepting has paused %d times already", n)
	}
	defer leaveDescriptors(t, 1)()
	second := r.dial(t)
	if _, err := second.Write([]byte("second")); err != nil {
		t.Fatal(err)
	}
	j.wait(t, "accepting paused")
	if n := r.Summary().AcceptPauses; n == 0 {
		t.Error("the summary does not say that accepting paused")
	}
	if got := r.Summary().Connections.Accepted; got != 1 {
		t.Errorf("%d connections are accepted", got)
	}
	finish(t, first)
	first.Close()
	got := make([]byte, 6)
	if _, err := io.ReadFull(second, got); err != nil || string(got) != "second" {
		t.Errorf("got %q, %v", got, err)
	}
}

// Nothing ends, either: the client is reset after some time, and the descriptor
// that it had goes to the next.
func TestClientWithoutADescriptorIsRefusedInTime(t *testing.T) {
	j, log := newJournal()
	server, err := proxy.Open(context.Background(), &proxy.Config{
		Loops: -1,
		Log:   log, Listen: []socket.Address{parse(t, "127.0.0.1:0")}, To: []socket.Address{parse(t, endpoint(t, "127.0.0.1:0", echo))},
		MaxConnections: 10, Engine: relay.EngineCopy,
	})
	if err != nil {
		t.Fatal(err)
	}
	pauses, patience := make(chan time.Time), make(chan time.Time)
	server.SetAfter(func(d time.Duration) <-chan time.Time {
		if d == 5*time.Second {
			return patience
		}
		return pauses
	})
	server.SetDial(func(context.Context) (net.Conn, error) { return nil, syscall.EMFILE })
	r := run(t, server)
	conn := r.dial(t)
	for range 3 {
		pauses <- time.Time{}
	}
	patience <- time.Time{}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client gets %v, want a reset", err)
	}
	waitInactive(r)
	if got := r.Summary().Connections; got.Refused != 1 {
		t.Errorf("connections are %+v", got)
	}
	j.wait(t, "client refused for want of descriptors")
}
