package failures

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
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

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/balancer"
	"github.com/penstock/penstock/proxy/config"
)

func TestMain(m *testing.M) {
	netns.Main() // serves, in the processes that are backends
	// The tests wait for timeouts most of the time, whatever the number of CPUs.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	leak.Main(m)
}

// patience is how long a test waits for what happens soon.
const patience = 20 * time.Second

// A rig is a load balancer that serves, until the end of the test.
type rig struct {
	*balancer.Server
	t   *testing.T
	log *logbook
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

// serve has a load balancer serve what a configuration says. There are a certificate and
// its key, c.pem and k.pem.
func serve(t *testing.T, text string) *rig {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "penstock.yaml")
	cert, key := certificate.New(t, "test")
	files := map[string]string{"penstock.yaml": text, "c.pem": cert, "k.pem": key}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, problems := config.Load(path, os.LookupEnv)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	r := &rig{t: t, log: new(logbook)}
	log := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	r.Server, err = balancer.Open(context.Background(), cfg, balancer.Options{
		Server: &proxy.Config{Loops: 2, MaxConnections: 1000, DrainTimeout: time.Second, Log: log},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil && !errors.Is(err, balancer.ErrCut) {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(r.log)
		}
	})
	return r
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
func (r *rig) endpoint(name string) admin.Endpoint {
	r.t.Helper()
	for _, u := range r.Status().Upstreams {
		for _, e := range u.Endpoints {
			if e.Name == name {
				return e
			}
		}
	}
	r.t.Fatalf("there is no endpoint %s", name)
	return admin.Endpoint{}
}

// count returns a counter.
func (r *rig) count(name string) int64 {
	n, known := r.Counter(name)
	if !known {
		r.t.Fatalf("there is no counter %s", name)
	}
	return n
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

// logs waits for a line of the log that has all of these in it.
func (r *rig) logs(words ...string) {
	r.t.Helper()
	r.until("the log has "+strings.Join(words, " "), func() bool {
	line:
		for line := range strings.Lines(r.log.String()) {
			for _, w := range words {
				if !strings.Contains(line, w) {
					continue line
				}
			}
			return true
		}
		return false
	})
}

// A manner is how clients speak: as they are, or in TLS that ends in the load balancer,
// where other code serves them.
type manner struct {
	name, listener string // of the configuration
	wrap           func(net.Conn) net.Conn
}

var manners = []manner{
	{name: "plain", wrap: func(c net.Conn) net.Conn { return c }},
	{
		name: "tls", listener: "tls: {certificates: [{cert: c.pem, key: k.pem}]},",
		wrap: func(c net.Conn) net.Conn { return tls.Client(c, &tls.Config{InsecureSkipVerify: true}) },
	},
}

// A client is a connection whose server has said its name.
type client struct {
	net.Conn
	of string
}

// dial connects a client, and reads its server's name.
func dial(t *testing.T, address string) (*client, error) {
	t.Helper()
	return manners[0].dial(t, address)
}

func (m *manner) dial(t *testing.T, address string) (*client, error) {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	return greeted(m.wrap(c))
}

// greeted reads the name of a client's server.
func greeted(c net.Conn) (*client, error) {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	var name strings.Builder
	for one := make([]byte, 1); ; name.WriteByte(one[0]) {
		if _, err := c.Read(one); err != nil {
			c.Close()
			return nil, err
		}
		if one[0] == '\n' {
			return &client{c, name.String()}, nil
		}
	}
}

// echo sends text and reads the same.
func (c *client) echo(text string) error {
	if _, err := io.WriteString(c, text); err != nil {
		return err
	}
	back := make([]byte, len(text))
	_, err := io.ReadFull(c, back)
	if err == nil && string(back) != text {
		err = errors.New("another text came back: " + string(back))
	}
	return err
}

// end waits for the end of a connection, and says how long it took and how it was.
func (c *client) end(t *testing.T) (took time.Duration, err error) {
	t.Helper()
	began := time.Now()
	_ = c.SetDeadline(began.Add(patience))
	if _, err = c.Read(make([]byte, 1)); err == nil {
		t.Error("a byte came in place of the end")
	}
	return time.Since(began), err
}

// reset fails the test unless a connection is reset, no later than ten times the time
// that it is to have at most.
func (c *client) reset(t *testing.T, within time.Duration) (took time.Duration) {
	t.Helper()
	took, err := c.end(t)
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a session ended with %v, want a reset", err)
	}
	if took > 10*within {
		t.Errorf("it took %v, much longer than %v", took, within)
	}
	return took
}
