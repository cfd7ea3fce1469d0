package balancer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/balancer"
	"github.com/penstock/penstock/proxy/config"
)

func TestMain(m *testing.M) { leak.Main(m) }

// patience is how long a test waits for what happens soon.
const patience = 20 * time.Second

// A rig is a load balancer that serves, until the end of the test.
type rig struct {
	*balancer.Server
	t    *testing.T
	path string
	log  *logbook
	stop context.CancelFunc
	done chan error
	over bool
}

// logbook is what was logged.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// start has a load balancer serve what a configuration says.
func start(t *testing.T, text string, files ...string) *rig {
	t.Helper()
	return startWith(t, 5000, text, files...)
}

// startWith is start for so many connections at once.
func startWith(t *testing.T, connections int, text string, files ...string) *rig {
	t.Helper()
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "penstock.yaml"), log: new(logbook), done: make(chan error, 1)}
	for i := 0; i+1 < len(files); i += 2 {
		r.write(files[i], files[i+1])
	}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	var err error
	r.Server, err = balancer.Open(context.Background(), r.load(text), balancer.Options{
		Server: &proxy.Config{Loops: 2, MaxConnections: connections, DrainTimeout: time.Second, Log: log},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.done <- r.Serve(ctx) }()
	t.Cleanup(r.end)
	return r
}

// write writes a file beside the configuration.
func (r *rig) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(filepath.Dir(r.path), name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// load loads a configuration.
func (r *rig) load(text string) *config.Config {
	r.t.Helper()
	r.write("penstock.yaml", text)
	cfg, problems := config.Load(r.path, os.LookupEnv)
	if len(problems) > 0 {
		r.t.Fatalf("%v", problems)
	}
	return cfg
}

// apply brings another configuration into force.
func (r *rig) apply(text string) {
	r.t.Helper()
	if err := r.Apply(context.Background(), r.load(text)); err != nil {
		r.t.Fatal(err)
	}
}

// end stops serving, and waits for it.
func (r *rig) end() {
	if r.over {
		return
	}
	r.over = true
	r.stop()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.Cut()
		<-r.done
		r.t.Error("it does not end")
	}
	if r.t.Failed() {
		r.t.Log(r.log.String())
	}
}

// at returns the first address of a listener.
func (r *rig) at(listener string) string {
	r.t.Helper()
	for _, l := range r.Status().Listeners {
		if l.Name == listener && len(l.Addresses) > 0 {
			return l.Addresses[0]
		}
	}
	r.t.Fatalf("there is no listener %s", listener)
	return ""
}

// endpoint returns the status of an endpoint.
func (r *rig) endpoint(upstream, name string) admin.Endpoint {
	r.t.Helper()
	for _, u := range r.Status().Upstreams {
		for _, e := range u.Endpoints {
			if u.Name == upstream && e.Name == name {
				return e
			}
		}
	}
	r.t.Fatalf("there is no endpoint %s/%s", upstream, name)
	return admin.Endpoint{}
}

// refused returns how many clients of a listener were refused for a reason.
func (r *rig) refused(listener, reason string) int64 {
	for _, l := range r.Status().Listeners {
		if l.Name == listener {
			return l.Reasons[reason]
		}
	}
	return -1
}

// until waits for a condition.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not in time: %s", what)
		}
	}
}

// server serves each connection until the end of the test, and returns its address.
func server(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sockets.Serve(t, ln, serve)
	return ln.Addr().String()
}

// named is a server that says its name, and then echoes.
func named(t *testing.T, name string) string {
	return server(t, func(c net.Conn) {
		fmt.Fprintf(c, "%s\n", name)
		sockets.Echo(c)
	})
}

// client is a connection with a deadline.
func client(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	c := sockets.Dial(t, address)
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// line reads what a client gets up to the end of the line.
func line(t *testing.T, c net.Conn) string {
	t.Helper()
	s, err := readLine(c)
	if err != nil {
		t.Fatalf("after %q: %v", s, err)
	}
	return s
}

func readLine(c net.Conn) (string, error) {
	var b strings.Builder
	one := make([]byte, 1)
	for {
		if _, err := c.Read(one); err != nil {
			return b.String(), err
		}
		if one[0] == '\n' {
			return b.String(), nil
		}
		b.WriteByte(one[0])
	}
}

// whose says which server a new client of an address gets.
func whose(t *testing.T, address string) string {
	t.Helper()
	c := client(t, address)
	defer c.Close()
	return line(t, c)
}

// echoes fails the test unless a connection still echoes.
func echoes(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("echo of %q: %q, %v", text, got, err)
	}
}

// refused fails the test unless a new client is reset, which it may be before it knows
// that it was connected.
func refused(t *testing.T, address string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, patience)
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
}

// gone reports how a connection ends that is expected to.
func gone(t *testing.T, c net.Conn) error {
	t.Helper()
	_, err := c.Read(make([]byte, 1))
	if err == nil {
		t.Fatal("a byte came in place of the end")
	}
	return err
}

var errTimeout = os.ErrDeadlineExceeded

// descriptors is how many the process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
