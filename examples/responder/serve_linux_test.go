package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/loop"
)

func TestMain(m *testing.M) { leak.Main(m) }

// patience is what a test waits for something that must happen.
const patience = time.Minute

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
		if err := os.WriteFile(filepath.Join(f.dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
		f.sums[name] = sum(b)
	}
	if err := os.WriteFile(filepath.Join(f.dir, "index.html"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.sums["/"] = sum([]byte("hello"))
	files, err := open(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	epoch := time.Now()
	group, err := loop.NewGroup(2, &loop.Config{Now: func() int64 { return int64(time.Since(epoch)) + f.later.Load() }})
	if err != nil {
		t.Fatal(err)
	}
	a, err := arena.New(&arena.Config{Locals: 2, Size: slots * arena.MaxSlot})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
		if err := s.loop.Post(func() {
			for c := range s.conns {
				all = append(all, c.out.Pending())
			}
			close(done)
		}); err != nil {
			t.Fatal(err)
		}
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
