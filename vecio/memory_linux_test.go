package vecio_test

import (
	"io"
	"runtime"
	"syscall"
	"testing"
	"weak"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/pool"
	"github.com/penstock/penstock/vecio"
)

// drainer reads n bytes from a descriptor without allocating.
func drainer(t testing.TB, c syscall.Conn) func(n int) {
	fd := sockets.FD(t, c)
	buf := make([]byte, 64<<10)
	return func(n int) {
		for n > 0 {
			k, err := sys.Recv(fd, buf[:min(n, len(buf))], sys.MSG_DONTWAIT)
			if err != nil && err != syscall.EAGAIN {
				t.Fatal(err)
			}
			n -= k
		}
	}
}

func skipRace(t *testing.T) {
	t.Helper()
	if race.Enabled {
		t.Skip("with the race detector sync.Pool drops items at random")
	}
}

// TestAllocs: in a steady state nothing is allocated, whatever the pieces are and
// wherever they go.
func TestAllocs(t *testing.T) {
	skipRace(t)
	bufs, err := pool.NewBytes(pool.BytesConfig{})
	must(t, err)
	defer bufs.Close()
	header, trailer, payload := []byte("header"), "trailer", make([]byte, 16<<10)
	release, back := vecio.Pooled(bufs), new(count)
	f := vecio.ReleaseFunc(func([]byte) {})
	// The build tag invariants makes the pool keep a ledger, which allocates.
	ledger := testing.AllocsPerRun(100, func() {
		p, err := bufs.Get(20_000)
		must(t, err)
		bufs.Put(p)
	})
	for name, open := range map[string]func(t *testing.T) (*vecio.Writer, func(int)){
		"a connection": func(t *testing.T) (*vecio.Writer, func(int)) {
			a, b := sockets.TCPPair(t)
			return newWriter(t, a, nil), drainer(t, b)
		},
		"a descriptor": func(t *testing.T) (*vecio.Writer, func(int)) {
			a, b := sockets.TCPPair(t)
			return newSocket(t, a, nil), drainer(t, b)
		},
		"a Write": func(t *testing.T) (*vecio.Writer, func(int)) {
			return newWriter(t, struct{ io.Writer }{io.Discard}, nil), func(int) {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, drain := open(t)
			flush := func(n int, errs ...error) {
				must(t, errs...)
				must(t, w.Flush())
				drain(n)
			}
			for name, op := range map[string]func(){
				"header, payload, trailer": func() {
					flush(6+7+len(payload), w.Append(header), w.Append(payload), w.AppendString(trailer))
				},
				"pooled": func() {
					p, err := bufs.Get(20_000)
					must(t, err)
					flush(len(p), w.Own(p, release), w.Own(nil, back), w.Own(nil, f))
				},
				"five hundred small ones": func() {
					for range 500 {
						must(t, w.Append(header))
					}
					flush(500 * 6)
				},
				"fifty large ones": func() {
					for range 50 {
						must(t, w.Own(payload[:2000], back))
					}
					flush(50 * 2000)
				},
				"nothing": func() { flush(0, w.Append(nil)) },
			} {
				op()
				if n := testing.AllocsPerRun(100, op); n != 0 && (name != "pooled" || n != ledger) {
					t.Errorf("%s: %v allocations", name, n)
				}
			}
		})
	}
}

// TestAllocsBlocked: a writer with a slow peer does not allocate either.
func TestAllocsBlocked(t *testing.T) {
	skipRace(t)
	a, b := sockets.TCPPair(t)
	w, drain := newSocket(t, a, &vecio.Config{High: 8 << 20}), drainer(t, b)
	piece := make([]byte, 3000)
	sent := 0
	step := func() {
		for w.Append(piece) == nil && w.Append(piece[:100]) == nil {
		}
		if err := w.Flush(); err != nil && err != vecio.ErrBlocked {
			t.Fatal(err)
		}
		n := int(w.Stats().Written) - sent
		sent += n
		drain(n)
	}
	for range 20 {
		step()
	}
	if n := testing.AllocsPerRun(50, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if w.Stats().Refused == 0 || w.Stats().Blocked == 0 {
		t.Errorf("it never blocked: %+v", w.Stats())
	}
}

// TestNothingKeepsAPayload: after a flush, a failure, Close and Reset no pool and no
// writer refers to any piece.
func TestNothingKeepsAPayload(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(w *vecio.Writer) error
		fail bool
	}{
		"flush":   {(*vecio.Writer).Flush, false},
		"close":   {(*vecio.Writer).Close, true},
		"reset":   {func(w *vecio.Writer) error { return w.Reset(io.Discard) }, false},
		"failure": {(*vecio.Writer).Flush, true},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := sockets.TCPPair(t)
			w := newWriter(t, a, &vecio.Config{High: 64 << 20})
			if name == "failure" {
				must(t, a.CloseWrite())
			} else {
				go io.Copy(io.Discard, b)
			}
			pieces := func() (kept []weak.Pointer[byte]) { // and nothing of them on our stack
				for range 2000 { // more than one call
					p, s := make([]byte, 2000), string(make([]byte, 3000))
					must(t, w.Append(p), w.Own(p[:1500], vecio.ReleaseFunc(func([]byte) { _ = p })), w.AppendString(s))
					kept = append(kept, weak.Make(&p[0]))
				}
				return kept
			}
			kept := pieces()
			if err := c.end(w); (err != nil) != c.fail {
				t.Fatal(err)
			}
			if headers, views := vecio.KeptBy(); headers+views != 0 {
				t.Errorf("the pools keep %d headers and %d views", headers, views)
			}
			runtime.GC()
			runtime.GC() // for the garbage that arose while the first one ran
			for i, p := range kept {
				if p.Value() != nil {
					t.Fatalf("piece %d of %d is kept alive", i, len(kept))
				}
			}
			runtime.KeepAlive(w)
		})
	}
}

// TestPartlyWritten: while the peer is slow, written pieces are not kept because of
// unwritten ones.
func TestPartlyWritten(t *testing.T) {
	a, b := sockets.TCPPair(t)
	w := newSocket(t, a, &vecio.Config{High: 1 << 30})
	var back count
	kept := func() (kept []weak.Pointer[byte]) {
		for range 64 {
			p := make([]byte, 1<<20)
			must(t, w.Own(p, &back))
			kept = append(kept, weak.Make(&p[0]))
		}
		return kept
	}()
	drain, drained := drainer(t, b), 0
	for back.n < 30 {
		if err := w.Flush(); err != vecio.ErrBlocked {
			t.Fatal(err)
		}
		n := int(w.Stats().Written) - drained
		drained += n
		drain(n)
	}
	runtime.GC()
	runtime.GC()
	for i, p := range kept {
		if alive := p.Value() != nil; alive != (i >= back.n) {
			t.Errorf("%d pieces are back, piece %d is alive: %v", back.n, i, alive)
		}
	}
	must(t, w.Reset(io.Discard))
}

// TestLongArraysAreNotKept: one burst does not make the pool's arrays long for good.
func TestLongArraysAreNotKept(t *testing.T) {
	w, err := vecio.NewScripted(func(views [][]byte) (int, error) { return len(views), nil }, &vecio.Config{CopyBelow: -1})
	must(t, err)
	var back count
	for range 1 << 15 {
		must(t, w.Own([]byte{1}, &back))
	}
	must(t, w.Flush())
	if spans, owners := vecio.ArraysKept(); spans > 1<<14 || owners > 1<<14 {
		t.Errorf("the pool keeps arrays of %d and %d headers", spans, owners)
	}
}

// TestIdleHoldsNothing: a writer without pending bytes has no buffer, and one with a
// little has little.
func TestIdleHoldsNothing(t *testing.T) {
	a, b := sockets.TCPPair(t)
	w := newSocket(t, a, nil)
	drain := drainer(t, b)
	for range 3 {
		if !w.Idle() || w.Memory() != 0 {
			t.Fatalf("an idle writer holds %d bytes", w.Memory())
		}
		must(t, w.AppendString("a header"))
		if n := w.Memory(); n < 4<<10 {
			t.Errorf("%d bytes for one header: are buffers counted?", n)
		}
		must(t, w.Flush())
		drain(8)
	}
}

// TestNothingKeptBySliding: a queue that is never empty moves its arrays down, and leaves
// nothing behind.
func TestNothingKeptBySliding(t *testing.T) {
	w, err := vecio.NewScripted(func(views [][]byte) (int, error) {
		if len(views) < 40 {
			return 0, syscall.EAGAIN
		}
		return len(views[0]) * (len(views) - 30), nil
	}, &vecio.Config{CopyBelow: -1, High: 1 << 20})
	must(t, err)
	var back count
	for range 1000 {
		for range 20 {
			must(t, w.Own(make([]byte, 10), &back))
		}
		if err := w.Flush(); err != vecio.ErrBlocked {
			t.Fatal(err)
		}
	}
	if back.n < 19_900 || back.n == 20_000 {
		t.Fatalf("%d of 20,000 pieces are back", back.n)
	}
	must(t, w.Reset(io.Discard))
	if headers, views := vecio.KeptBy(); headers+views != 0 {
		t.Errorf("the pools keep %d headers and %d views", headers, views)
	}
}
