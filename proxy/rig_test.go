//go:build linux

package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/socket"
)

func TestMain(m *testing.M) { leak.Main(m) }

// endpoint serves each connection by serve until the test ends, and returns its
// address.
func endpoint(t *testing.T, spec string, serve func(net.Conn)) string {
	t.Helper()
	addr := parse(t, spec)
	lc := net.ListenConfig{}
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(context.Background(), addr.Network, addr.Name)
	if err != nil {
		t.Fatal(err)
	}
	sockets.Serve(t, ln, serve)
	if addr.Network == "unix" {
		return spec
	}
	return ln.Addr().String()
}

// echo is sockets.Echo.
func echo(conn net.Conn) { sockets.Echo(conn) }

func parse(t *testing.T, spec string) socket.Address {
	t.Helper()
	addr, err := socket.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// eachDriver runs a test with every driver.
func eachDriver(t *testing.T, test func(*testing.T)) {
	for _, name := range []string{"goroutines", "1 loop", "loops"} {
		t.Run(name, test)
	}
}

// loopsOf returns how many loops the servers of a test have, by its name.
func loopsOf(t *testing.T) int {
	for _, part := range strings.Split(t.Name(), "/") {
		switch part {
		case "goroutines":
			return -1
		case "1_loop":
			return 1
		}
	}
	return 2
}

// running is a server that serves.
type running struct {
	*proxy.Server
	stop context.CancelFunc
	done chan error
}

// serve opens a server on a free port (unless cfg says where) in front of
// targets, and lets it serve until the test ends.
func serve(t *testing.T, cfg proxy.Config, targets ...string) *running {
	t.Helper()
	if cfg.Listen == nil {
		cfg.Listen = []socket.Address{parse(t, "127.0.0.1:0")}
	}
	if cfg.Loops == 0 {
		cfg.Loops = loopsOf(t)
	}
	if cfg.MaxConnections == 0 {
		cfg.MaxConnections = 1000
	}
	for _, target := range targets {
		cfg.To = append(cfg.To, parse(t, target))
	}
	server, err := proxy.Open(context.Background(), &cfg)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, server)
}

func run(t *testing.T, server *proxy.Server) *running {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &running{Server: server, stop: stop, done: make(chan error, 1)}
	finished := make(chan struct{})
	go func() {
		r.done <- server.Serve(ctx)
		close(r.done)
		close(finished)
	}()
	t.Cleanup(func() {
		server.Cut()
		stop()
		<-finished
	})
	return r
}

// dial connects to the server; the connection is closed at the end of the test.
func (r *running) dial(t *testing.T) net.Conn {
	t.Helper()
	addr := parse(t, r.Addresses()[0])
	conn, err := net.Dial(addr.Network, addr.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

// exchange sends text through the proxy to an echo, and waits for it.
func exchange(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if err := roundTrip(conn, text); err != nil {
		t.Fatal(err)
	}
}

func roundTrip(conn net.Conn, text string) error {
	if _, err := conn.Write([]byte(text)); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != text {
		return fmt.Errorf("got %q back for %q", got, text)
	}
	return nil
}

// finish ends a client's session with its end of file, and waits for the other.
func finish(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("read %d bytes, %v, want the end of file", n, err)
	}
}

// journal keeps what is logged.
type journal struct {
	mu      sync.Mutex
	records []slog.Record
	changed chan struct{} // closed by the next record
}

func newJournal() (*journal, *slog.Logger) {
	j := &journal{changed: make(chan struct{})}
	return j, slog.New(j)
}

func (j *journal) Enabled(context.Context, slog.Level) bool { return true }
func (j *journal) WithAttrs([]slog.Attr) slog.Handler       { return j }
func (j *journal) WithGroup(string) slog.Handler            { return j }

func (j *journal) Handle(_ context.Context, r slog.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records = append(j.records, r)
	close(j.changed)
	j.changed = make(chan struct{})
	return nil
}

// find returns the records with the message.
func (j *journal) find(msg string) []slog.Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []slog.Record
	for _, r := range j.records {
		if r.Message == msg {
			found = append(found, r)
		}
	}
	return found
}

// wait waits for a record with the message.
func (j *journal) wait(t *testing.T, msg string) slog.Record {
	t.Helper()
	for {
		j.mu.Lock()
		changed := j.changed
		j.mu.Unlock()
		if found := j.find(msg); found != nil {
			return found[0]
		}
		select {
		case <-changed:
		case <-time.After(time.Minute):
			t.Fatalf("no %q is logged", msg)
		}
	}
}

// attr returns the text of an attribute.
func attr(r slog.Record, key string) string {
	text := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			text = a.Value.String()
		}
		return true
	})
	return text
}
