package page

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/software"
)

// answer is the file that each nginx has.
var answer = strings.Repeat("all of it, or none of it\n", 1000)

// An nginx is an endpoint. Its log has a line for each answer: the status, and the bytes of the body.
type nginx struct{ addr, dir string }

// startNginx starts one that answers so many requests a second, one after the other; "" is as many as it can.
func startNginx(t testing.TB, rate string) *nginx {
	t.Helper()
	program := software.Need(t, "nginx", "nginx")
	n := &nginx{dir: software.Dir(t, nil)}
	n.addr, _, _ = software.Addr(t)
	worker, zone, limit := "", "", ""
	if os.Getuid() == 0 { // the workers of an ordinary user run as that user
		worker = "user root;"
	}
	if rate != "" {
		zone, limit = fmt.Sprintf("limit_req_zone $server_addr zone=all:1m rate=%s;", rate), "limit_req zone=all burst=1000;"
	}
	must(t, os.Mkdir(filepath.Join(n.dir, "files"), 0o755))
	must(t, os.WriteFile(filepath.Join(n.dir, "files", "answer"), []byte(answer), 0o644))
	must(t, os.WriteFile(filepath.Join(n.dir, "nginx.conf"), fmt.Appendf(nil, `
daemon off; %s worker_processes 1; pid nginx.pid; error_log stderr;
events {}
http {
	log_format short "$status $body_bytes_sent"; access_log access.log short;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	keepalive_requests 1000000; keepalive_timeout 1h;
	%s
	server { listen %s; root files; add_header Endpoint %s; %s }
}
`, worker, zone, n.addr, n.addr, limit), 0o644))
	software.Service{
		Command: []string{program, "-p", n.dir, "-c", "nginx.conf", "-e", "stderr"}, Dir: n.dir, Addr: n.addr, Stop: syscall.SIGTERM,
	}.Start(t)
	return n
}

// answers counts the answers in its log. The test fails if one was not the whole file.
func (n *nginx) answers(t testing.TB) (count int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(n.dir, "access.log"))
	must(t, err)
	whole := fmt.Sprintf("200 %d\n", len(answer))
	for line := range strings.Lines(string(text)) {
		if count++; line != whole && strings.HasSuffix(line, "\n") {
			t.Errorf("%s has sent %q", n.addr, line)
		}
	}
	return count
}

// from returns a transport for connections from an address of this machine; "" is any.
func from(source string) *http.Transport {
	d := &net.Dialer{}
	if source != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
	}
	return &http.Transport{DialContext: d.DialContext}
}

// get gets the file, checks it, and returns the endpoint that has sent it.
func get(ctx context.Context, transport http.RoundTripper, at string) (endpoint string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/answer", nil)
	if err != nil {
		return "", err
	}
	a, err := transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil || sha256.Sum256(body) != sha256.Sum256([]byte(answer)) {
		return "", fmt.Errorf("%s: %d bytes of %s: %w", a.Status, len(body), a.Header.Get("Endpoint"), errors.Join(err, errors.New("not the file")))
	}
	return a.Header.Get("Endpoint"), nil
}

// ask gets the file by a connection of its own from a source.
func (c *crowd) ask(source string) error {
	transport := from(source)
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), condition.Patience)
	defer cancel()
	endpoint, err := get(ctx, transport, c.address)
	if err == nil {
		c.note(endpoint, source)
	}
	return err
}

// repeat calls a function again and again until stop is called.
func repeat(t testing.TB, call func()) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			call()
			pause(ctx, 10*time.Millisecond)
		}
	})
	stop = func() { cancel(); done.Wait() }
	t.Cleanup(stop)
	return stop
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// A crowd is clients that keep a connection each: they ask some times, look at that for a while, and ask again.
type crowd struct {
	testing.TB
	address string          // which they ask
	ctx     context.Context // has ended when they stop
	cancel  context.CancelFunc
	done    sync.WaitGroup

	mu   sync.Mutex
	by   map[string]int    // answers by endpoint
	last map[string]string // the endpoint that has answered last, by client
}

// startCrowd starts them. The test fails if one of them does not get all of an answer.
func startCrowd(t testing.TB, at string) *crowd {
	c := &crowd{TB: t, address: at, by: make(map[string]int), last: make(map[string]string)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for i := range visitors {
		c.done.Go(func() { c.visit(fmt.Sprintf("127.0.8.%d", i+1)) })
	}
	t.Cleanup(c.stop)
	return c
}

// stop stops them, each after its answer.
func (c *crowd) stop() {
	c.cancel()
	c.done.Wait()
}

func (c *crowd) visit(source string) {
	transport := from(source)
	defer transport.CloseIdleConnections()
	for c.ctx.Err() == nil {
		for range 3 + rand.N(5) {
			endpoint, err := get(context.Background(), transport, c.address)
			if err != nil {
				c.Errorf("a client: %v", err)
				return
			}
			c.note(endpoint, source)
			pause(c.ctx, 20*time.Millisecond)
		}
		pause(c.ctx, 2*time.Second+rand.N(500*time.Millisecond))
	}
}

func (c *crowd) note(endpoint, source string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by[endpoint]++
	c.last[source] = endpoint
}

func (c *crowd) served() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.last)
}

func (c *crowd) at(endpoint string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, by := range c.last {
		if by == endpoint {
			n++
		}
	}
	return n
}

// answers returns how many answers of an endpoint they have had; "": of all.
func (c *crowd) answers(endpoint string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for by, answers := range c.by {
		if endpoint == "" || by == endpoint {
			n += answers
		}
	}
	return n
}

// check compares the answers that they have had with the log of an endpoint: none is lost, and none is had twice.
func (c *crowd) check(n *nginx) {
	c.Helper()
	sent, had := 0, 0
	same := func() bool { sent, had = n.answers(c), c.answers(n.addr); return sent == had }
	if !condition.Eventually(same) { // it writes its log after the answer
		c.Errorf("%s has sent %d answers, and its clients have had %d", n.addr, sent, had)
	}
}
