package main

import (
	"bufio"
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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
)

// TestParallel: 64 connections of Go's client, with slots for a few of them only: the
// others wait for theirs, or get by with the heap, and all get everything.
func TestParallel(t *testing.T) {
	f := start(t, 6)
	var dialed atomic.Int64
	transport := &http.Transport{
		MaxIdleConnsPerHost: 64,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			dialed.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: condition.Patience}
	paths := f.paths()
	var clients, connected sync.WaitGroup
	connected.Add(64)
	for i := range 64 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(i)))
			for n := range 12 {
				path := paths[random.IntN(len(paths))]
				r, err := client.Get("http://" + f.address + path)
				if n == 0 { // the body is not read before all have a connection of their own
					connected.Done()
					connected.Wait()
				}
				if err == nil {
					err = f.check(r, path)
				}
				if err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
			}
		})
	}
	clients.Wait()
	if n := dialed.Load(); n < 32 {
		t.Errorf("%d connections for 64 clients of 12 requests", n)
	}
}

func (f *fixture) paths() []string {
	var paths []string
	for path := range f.sums {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

// TestPipeline: requests of all kinds in one go, and what they ask for, in order.
func TestPipeline(t *testing.T) {
	f := start(t, 64)
	c := sockets.Dial(t, f.address)
	var requests []*http.Request
	var sent strings.Builder
	for i, path := range slices.Repeat(f.paths(), 5) {
		method := []string{http.MethodGet, http.MethodHead, http.MethodGet}[i%3]
		r := must.Get(http.NewRequest(method, "http://"+f.address+path, nil))(t)
		requests = append(requests, r)
		fmt.Fprintf(&sent, "%s %s HTTP/1.1\r\nHost: here\r\n\r\n", method, path)
	}
	go func() { _, _ = io.WriteString(c, sent.String()) }()
	from := bufio.NewReader(c)
	for _, request := range requests {
		r := must.Get(http.ReadResponse(from, request))(t)
		path := request.URL.Path
		if request.Method == http.MethodHead {
			if r.StatusCode != http.StatusOK || r.ContentLength < 0 {
				t.Fatalf("HEAD %s: %s, %d", path, r.Status, r.ContentLength)
			}
		} else if err := f.check(r, path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBounds: a client who asks on and on and reads nothing has to stop asking, with no
// more than the high mark pending; and is served, once it reads.
func TestBounds(t *testing.T) {
	f := start(t, 64)
	c := sockets.Dial(t, f.address)
	const path = "/65537.bin"
	request := "GET " + path + " HTTP/1.1\r\nHost: here\r\nX-Padding: " + strings.Repeat("x", 4000) + "\r\n\r\n"
	must.Do(t, c.SetWriteBuffer(32<<10))
	must.Do(t, c.SetWriteDeadline(time.Now().Add(500*time.Millisecond)))
	// More than the buffers of two sockets hold. To be too slow for it in this time is
	// to pass.
	n, err := io.WriteString(c, strings.Repeat(request, 64<<20/len(request)))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes of requests were taken: %v", n, err)
	}
	for _, pending := range f.pending(t) {
		if pending > high {
			t.Errorf("%d bytes are pending", pending)
		}
	}
	from := bufio.NewReader(c)
	for i := range n / len(request) {
		r, err := http.ReadResponse(from, nil)
		if err == nil {
			err = f.check(r, path)
		}
		if err != nil {
			t.Fatalf("response %d of %d: %v", i, n/len(request), err)
		}
	}
}

// TestSlotsOut: clients who ask for much and read nothing have all of the slots. Others
// are served anyway.
func TestSlotsOut(t *testing.T) {
	const path, stalled = "/5242877.bin", 6
	f := start(t, 2)
	for range stalled {
		request := "GET " + path + " HTTP/1.1\r\nHost: here\r\n\r\n"
		must.Get(io.WriteString(sockets.Dial(t, f.address), strings.Repeat(request, 10)))(t)
	}
	waiting := func() (n int) {
		for _, pending := range f.pending(t) {
			if pending > 0 {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(condition.Patience); waiting() < stalled; {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d are stalled", waiting(), stalled)
		}
	}
	for range 8 {
		c := sockets.Dial(t, f.address)
		must.Get(io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: here\r\n\r\n"))(t)
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil {
			err = f.check(r, path)
		}
		must.Do(t, err)
	}
}

// TestRefusals: what is said to requests that are none, and whether another may follow.
func TestRefusals(t *testing.T) {
	f := start(t, 64)
	for _, c := range []struct {
		name, sent string
		status     int
		ends       bool
	}{
		{"no such file", "GET /none HTTP/1.1\r\nHost: here\r\n\r\n", 404, false},
		{"out of the directory", "GET /../main_linux.go HTTP/1.1\r\nHost: here\r\n\r\n", 404, false},
		{"no method for it", "DELETE / HTTP/1.1\r\nHost: here\r\n\r\n", 405, false},
		{"with a body", "POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 3\r\n\r\nabc", 405, true},
		{"with chunks", "GET / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, true},
		{"no request", "what is this?\r\n\r\n", 400, true},
		{"an empty line", "\r\n\r\n", 400, true},
		{"no host", "GET / HTTP/1.1\r\n\r\n", 400, true},
		{"too long", "GET / HTTP/1.1\r\nHost: here\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", 431, true},
		{"endless", strings.Repeat("x", maxHead), 431, true},
		{"the longest", "GET / HTTP/1.1\r\nHost: here\r\nX: " + strings.Repeat("x", maxHead-35) + "\r\n\r\n", 200, false},
		{"wants the end", "GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n", 200, true},
		{"is old", "GET / HTTP/1.0\r\n\r\n", 200, true},
	} {
		t.Run(c.name, func(t *testing.T) { f.refused(t, c.sent, c.status, c.ends) })
	}
}

func (f *fixture) refused(t *testing.T, sent string, status int, ends bool) {
	c := sockets.Dial(t, f.address)
	must.Get(io.WriteString(c, sent))(t)
	from := bufio.NewReader(c)
	r := must.Get(http.ReadResponse(from, nil))(t)
	b, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil || r.StatusCode != status || r.Close != ends || len(b) == 0 {
		t.Errorf("%s, close: %v, %q, %v", r.Status, r.Close, b, err)
	}
	if ends {
		if n, err := io.Copy(io.Discard, from); n != 0 || err != nil {
			t.Errorf("after the last response: %d bytes, %v", n, err)
		}
		return
	}
	for b := range strings.SplitSeq("GET / HTTP/1.1\r\nHost: here\r\n\r\n", "") { // byte by byte
		must.Get(io.WriteString(c, b))(t)
	}
	if r, err = http.ReadResponse(from, nil); err == nil {
		err = f.check(r, "/")
	}
	if err != nil {
		t.Errorf("the next request: %v", err)
	}
}

// TestIdle: a client who begins a request and leaves it at that is dropped in time, and
// so is one who does not close after the last response.
func TestIdle(t *testing.T) {
	f := start(t, 64)
	for _, sent := range []string{"GET / HT", "GET / HTTP/1.0\r\n\r\n"} {
		c := sockets.Dial(t, f.address)
		must.Get(io.WriteString(c, "GET / HTTP/1.1\r\nHost: here\r\n\r\n"+sent))(t)
		from := bufio.NewReader(c)
		r, err := http.ReadResponse(from, nil)
		if err == nil {
			err = f.check(r, "/")
		}
		must.Do(t, err)
		for deadline := time.Now().Add(condition.Patience); len(f.pending(t)) > 0; f.later.Add(int64(idle)) {
			if time.Now().After(deadline) {
				t.Fatal("it is still there")
			}
		}
		must.Get(io.Copy(io.Discard, from))(t)
	}
}

func TestMain(m *testing.M) { leak.Main(m) }

var sizes = []int{0, 1, 511, 512, 513, small - 1, small, small + 1, arena.MaxSlot, arena.MaxSlot + 1, 1<<20 + 7, 5<<20 - 3}

// A fixture is a responder of files of these sizes.
type fixture struct {
	address string
	dir     string
	sums    map[string]string // of the files, by path
	servers []*server
	later   atomic.Int64 // what is added to the loops' clock
}

// start starts one, and ends it with the test: then all slots are back.
func start(t *testing.T, slots int64) *fixture {
	t.Helper()
	f := &fixture{dir: t.TempDir(), sums: map[string]string{}}
	source := rand.NewChaCha8([32]byte{1})
	for _, n := range sizes {
		b := make([]byte, n)
		_, _ = source.Read(b)
		name := fmt.Sprintf("/%d.bin", n)
		must.Do(t, os.WriteFile(filepath.Join(f.dir, name), b, 0o600))
		f.sums[name] = sum(b)
	}
	must.Do(t, os.WriteFile(filepath.Join(f.dir, "index.html"), []byte("hello"), 0o600))
	f.sums["/"] = sum([]byte("hello"))
	files := must.Get(open(f.dir))(t)
	epoch := time.Now()
	group := must.Get(loop.NewGroup(2, &loop.Config{Now: func() int64 { return int64(time.Since(epoch)) + f.later.Load() }}))(t)
	a := must.Get(arena.New(&arena.Config{Locals: 2, Size: slots * arena.MaxSlot}))(t)
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	f.servers = newServers(group, a, files)
	f.address = l.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- serve(group, l.(*net.TCPListener), f.servers) }()
	t.Cleanup(func() {
		group.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for i := range a.Locals() {
			a.Local(i).Flush()
		}
		if s := a.Stats(); s.ByPurpose[arena.Other].Out != 0 || s.Stale != 0 {
			t.Errorf("%d slots are out, %d were stale", s.ByPurpose[arena.Other].Out, s.Stale)
		}
		files.close()
		group.Close()
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// pending returns how many bytes are pending for each of the connections.
func (f *fixture) pending(t *testing.T) []int {
	t.Helper()
	var all []int
	for _, s := range f.servers {
		done := make(chan struct{})
		must.Do(t, s.loop.Post(func() {
			for c := range s.conns {
				all = append(all, c.out.Pending())
			}
			close(done)
		}))
		<-done
	}
	return all
}

func sum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

// check reads the body of a response to a GET of that path.
func (f *fixture) check(r *http.Response, path string) error {
	h := sha256.New()
	n, err := io.Copy(h, r.Body)
	r.Body.Close()
	switch got := fmt.Sprintf("%x", h.Sum(nil)); {
	case err != nil:
		return fmt.Errorf("%s: %w after %d bytes", path, err, n)
	case r.StatusCode != http.StatusOK || got != f.sums[path] || r.ContentLength != n:
		return fmt.Errorf("%s: %s, %d of %d bytes, SHA-256 %s, want %s", path, r.Status, n, r.ContentLength, got, f.sums[path])
	case r.Header.Get("Date") == "" || r.Header.Get("Content-Type") == "":
		return fmt.Errorf("%s: fields %v", path, r.Header)
	}
	return nil
}
