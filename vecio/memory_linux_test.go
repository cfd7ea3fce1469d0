package vecio_test

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"
	"weak"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
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
	bufs := must.Get(pool.New(pool.Config[[]byte]{New: func(context.Context) ([]byte, error) { return make([]byte, 20_000), nil }}))(t)
	defer bufs.Close()
	ctx := t.Context()
	header, trailer, payload := []byte("header"), "trailer", make([]byte, 16<<10)
	release, back := vecio.ReleaseFunc(bufs.Put), new(count)
	f := vecio.ReleaseFunc(func([]byte) {})
	// The build tag invariants makes the pool keep a ledger, which allocates.
	ledger := testing.AllocsPerRun(100, func() {
		p := must.Get(bufs.Get(ctx))(t)
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
				must.Do(t, errs...)
				must.Do(t, w.Flush())
				drain(n)
			}
			for name, op := range map[string]func(){
				"header, payload, trailer": func() {
					flush(6+7+len(payload), w.Append(header), w.Append(payload), w.AppendString(trailer))
				},
				"pooled": func() {
					p := must.Get(bufs.Get(ctx))(t)
					flush(len(p), w.Own(p, release), w.Own(nil, back), w.Own(nil, f))
				},
				"five hundred small ones": func() {
					for range 500 {
						must.Do(t, w.Append(header))
					}
					flush(500 * 6)
				},
				"fifty large ones": func() {
					for range 50 {
						must.Do(t, w.Own(payload[:2000], back))
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
				must.Do(t, a.CloseWrite())
			} else {
				go io.Copy(io.Discard, b)
			}
			pieces := func() (kept []weak.Pointer[byte]) { // and nothing of them on our stack
				for range 2000 { // more than one call
					p, s := make([]byte, 2000), string(make([]byte, 3000))
					must.Do(t, w.Append(p), w.Own(p[:1500], vecio.ReleaseFunc(func([]byte) { _ = p })), w.AppendString(s))
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
			must.Do(t, w.Own(p, &back))
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
	must.Do(t, w.Reset(io.Discard))
}

// TestLongArraysAreNotKept: one burst does not make the pool's arrays long for good.
func TestLongArraysAreNotKept(t *testing.T) {
	w := must.Get(vecio.NewScripted(func(views [][]byte) (int, error) { return len(views), nil }, &vecio.Config{CopyBelow: -1}))(t)
	var back count
	for range 1 << 15 {
		must.Do(t, w.Own([]byte{1}, &back))
	}
	must.Do(t, w.Flush())
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
		must.Do(t, w.AppendString("a header"))
		if n := w.Memory(); n < 4<<10 {
			t.Errorf("%d bytes for one header: are buffers counted?", n)
		}
		must.Do(t, w.Flush())
		drain(8)
	}
}

// TestRuleLiveMemory: while pieces are pending, and while a call has views of them,
// nothing but the writer keeps them alive: neither pieces nor strings are collected, nor
// do they move.
func TestRuleLiveMemory(t *testing.T) {
	const n, size = 50, 3000
	var kept []weak.Pointer[byte]
	calls := 0
	var got []byte
	kernel := func(pieces [][]byte) (int, error) {
		calls++
		runtime.GC()
		runtime.GC()
		litter()
		for i, p := range kept {
			// The first call takes one and a half pieces; they are released by then.
			if alive := p.Value() != nil; !alive && (calls == 1 || i >= 2*2) {
				t.Errorf("call %d: piece %d was collected", calls, i)
			}
		}
		all := bytes.Join(pieces, nil)
		if calls == 1 {
			all = all[:size*3/2]
		}
		got = append(got, all...)
		return len(all), nil
	}
	w := must.Get(vecio.NewScripted(kernel, nil))(t)
	var want []byte
	func() {
		for i := range n {
			p, s := bytes.Repeat([]byte{byte(i)}, size), strings.Repeat(string(rune('0'+i)), size)
			want = append(append(want, p...), s...)
			must.Do(t, w.Append(p), w.AppendString(s))
			kept = append(kept, weak.Make(&p[0]), weak.Make(unsafe.StringData(s)))
		}
	}()
	grow(1000) // our stack moves
	must.Do(t, w.Flush())
	if calls != 2 || !bytes.Equal(got, want) {
		t.Errorf("%d calls, and their bytes are right: %v", calls, bytes.Equal(got, want))
	}
}

// litter reuses memory that was freed.
func litter() {
	for range 1000 {
		p := make([]byte, 3000)
		for i := range p {
			p[i] = 0xdb
		}
		runtime.KeepAlive(p)
	}
}

// grow makes the stack of the goroutine move.
func grow(depth int) byte {
	var room [256]byte
	if depth > 0 {
		room[depth%256] = grow(depth - 1)
	}
	return room[depth%256]
}

// TestRuleNoReuse: neither an owned piece nor a buffer of ours is given to another user
// before the kernel has taken all of it. Other users who lease and overwrite buffers
// meanwhile change nothing.
func TestRuleNoReuse(t *testing.T) {
	free := sync.Pool{} // of pieces that were given back
	take := func() []byte {
		if p, _ := free.Get().(*[]byte); p != nil {
			return *p
		}
		return make([]byte, 2000)
	}
	back := vecio.ReleaseFunc(func(p []byte) {
		for i := range p {
			p[i] = 0xdb
		}
		if len(p) == 2000 {
			free.Put(&p)
		}
	})
	var got, want []byte
	step := 0
	var w, other *vecio.Writer
	scribble := func() {
		for range 100 { // with another writer's small pieces and ours that came back
			must.Do(t, other.Own(bytes.Repeat([]byte{0xee}, 500), back))
			for i, p := 0, take(); i < len(p); i++ {
				p[i] = 0xdd
			}
		}
		must.Do(t, other.Reset(new(bytes.Buffer)))
	}
	kernel := func(views [][]byte) (int, error) {
		scribble()
		all := bytes.Join(views, nil)
		if step++; step%3 == 0 {
			return 0, syscall.EAGAIN
		}
		all = all[:min(len(all), step*1237%9000+1)]
		got = append(got, all...)
		return len(all), nil
	}
	w = must.Get(vecio.NewScripted(kernel, nil))(t)
	other = newWriter(t, new(bytes.Buffer), nil)
	for i := range 100 {
		p := take()[:2000]
		for j := range p {
			p[j] = byte(i)
		}
		small := bytes.Repeat([]byte{byte(i)}, 900)
		want = append(append(want, p...), small...)
		must.Do(t, w.Own(p, back), w.Own(small, back))
		for w.Flush() == vecio.ErrBlocked && step%5 == 0 {
		}
	}
	must.Do(t, flushed(w))
	if !bytes.Equal(got, want) {
		t.Error("the pending bytes have changed")
	}
}

// hot are the functions of the byte path. None of them may move anything to the heap. The
// only thing that leaks is a piece that goes into the queue.
var hot = map[string]map[string][]string{
	"vecio": {
		"writer.go":           {"Append", "AppendString", "Own", "append", "add", "state", "admit", "wrote", "pop", "release", "drain", "Flush", "Pending", "abandon"},
		"queue.go":            {"refer", "copy", "extend", "turn", "crowded", "ample", "shut", "cut", "recycle", "add", "reached", "forget", "alike", "short", "noteLike", "offer", "sync", "long", "Release"},
		"descriptor_linux.go": {"push", "once", "next", "send", "sendCopy", "drain", "step", "fill", "giveBack", "view"},
		"policy.go":           {"End", "paced", "settle"},
	},
	"internal/sys": {"message_linux.go": {"Sendmsg", "WritevVector"}, "socket_linux.go": {"Send"}, "file_linux.go": {"Write"}},
}

// TestEscapes reads the compiler's report: the message header stays on the stack, views
// are made in place, and no hot function allocates.
func TestEscapes(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles two packages")
	}
	out, err := exec.Command("go", "build", "-gcflags=-m", module+"vecio", module+"internal/sys").CombinedOutput()
	if err != nil {
		t.Fatalf("go build -gcflags=-m: %v\n%s", err, out)
	}
	report := string(out)
	for pkg, files := range hot {
		lines := functionLines(t, pkg)
		for file, functions := range files {
			for _, name := range functions {
				checkEscapes(t, pkg, file, name, report, lines)
			}
		}
	}
	// And it reports the array itself once, so one report is expected.
	if n := len(regexp.MustCompile(`(?m)message_linux.go:\d+:\d+: pieces does not escape$`).FindAllString(report, -1)); n < 2 {
		t.Errorf("the compiler reports %d times that the pieces of a call do not escape", n)
	}
}

const module = "github.com/penstock/penstock/"

var moved = regexp.MustCompile(`(?m)^(\S+):(\d+):\d+: (.*(?:escapes to heap|moved to heap).*)$`)

func checkEscapes(t *testing.T, pkg, file, name, report string, lines map[string][][2]int) {
	t.Helper()
	ranges := lines[file+" "+name]
	if len(ranges) == 0 {
		t.Errorf("%s/%s has no function %s any more", pkg, file, name)
	}
	for _, m := range moved.FindAllStringSubmatch(report, -1) {
		var line int
		must.Get(fmt.Sscan(m[2], &line))(t)
		for _, r := range ranges {
			if strings.HasSuffix(m[1], "/"+file) && line >= r[0] && line <= r[1] && !allowed(m[3]) {
				t.Errorf("%s: %s", name, m[0])
			}
		}
	}
}

// allowed reports whether a line is about an empty pool or a failure, not about each
// piece.
func allowed(what string) bool {
	for _, ok := range []string{
		"append escapes to heap",                // a queue's array grows, and is pooled
		"&buffer{...} escapes to heap",          // there is no buffer in the pool
		"make([]byte, sizes[size]) escapes",     //
		"make([]unix.Iovec, 0, n) escapes",      // more than IOV_MAX, for the kernel to refuse
		"e escapes to heap",                     // an errno: the runtime keeps them boxed
		"&os.SyscallError{...} escapes to heap", // a failure
	} {
		if strings.HasPrefix(what, ok) {
			return true
		}
	}
	return false
}

// functionLines returns for "file function" the first and the last line of each
// function of that name.
func functionLines(t *testing.T, pkg string) map[string][][2]int {
	t.Helper()
	names := must.Get(filepath.Glob(filepath.Join("..", pkg, "*.go")))(t)
	lines := make(map[string][][2]int)
	for _, path := range names {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		f := must.Get(parser.ParseFile(files, path, nil, 0))(t)
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				key := filepath.Base(path) + " " + f.Name.Name
				lines[key] = append(lines[key], [2]int{files.Position(f.Pos()).Line, files.Position(f.End()).Line})
			}
		}
	}
	return lines
}
