package vecio_test

import (
	"bytes"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"
	"weak"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/vecio"
)

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
	w, err := vecio.NewScripted(kernel, nil)
	must(t, err)
	var want []byte
	func() {
		for i := range n {
			p, s := bytes.Repeat([]byte{byte(i)}, size), strings.Repeat(string(rune('0'+i)), size)
			want = append(append(want, p...), s...)
			must(t, w.Append(p), w.AppendString(s))
			kept = append(kept, weak.Make(&p[0]), weak.Make(unsafe.StringData(s)))
		}
	}()
	grow(1000) // our stack moves
	must(t, w.Flush())
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

// TestRuleLength: no view is longer than its slice, whatever capacity is behind it, nor
// reaches back before it, however a call ends in the midst of pieces.
func TestRuleLength(t *testing.T) {
	backing := bytes.Repeat([]byte("#"), 100<<10)
	const n, apart = 300, 300 // with something between any two
	end := func(i int) int { return i*apart + 1 + i%(apart-1) }
	inside := func(p []byte) bool {
		at := int(uintptr(unsafe.Pointer(unsafe.SliceData(p))) - uintptr(unsafe.Pointer(unsafe.SliceData(backing))))
		return at >= 0 && at < n*apart && at+len(p) <= end(at/apart)
	}
	step := 0
	w, err := vecio.NewScripted(func(views [][]byte) (int, error) {
		for _, v := range views {
			if len(v) == 0 || !inside(v) {
				t.Fatalf("a view of %d bytes that is in no piece", len(v))
			}
		}
		step++
		return min(step%97+1, len(bytes.Join(views, nil))), nil
	}, &vecio.Config{CopyBelow: -1})
	must(t, err)
	total := int64(0)
	for i := range n {
		p := backing[i*apart : end(i)] // whose capacity goes to the end
		must(t, w.Append(p))
		total += int64(len(p))
	}
	must(t, w.Flush())
	if w.Stats().Written != total {
		t.Errorf("%d bytes written of %d", w.Stats().Written, total)
	}
	var v sys.Iovec
	for _, p := range [][]byte{backing, backing[:1], backing[5:10:10], make([]byte, 7, 100)} {
		vecio.View(&v, p)
		if v.Base != &p[0] || int(v.Len) != len(p) {
			t.Errorf("a view of %d bytes of a slice of %d", v.Len, len(p))
		}
	}
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
			must(t, other.Own(bytes.Repeat([]byte{0xee}, 500), back))
			for i, p := 0, take(); i < len(p); i++ {
				p[i] = 0xdd
			}
		}
		must(t, other.Reset(new(bytes.Buffer)))
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
	w, err := vecio.NewScripted(kernel, nil)
	must(t, err)
	other = newWriter(t, new(bytes.Buffer), nil)
	for i := range 100 {
		p := take()[:2000]
		for j := range p {
			p[j] = byte(i)
		}
		small := bytes.Repeat([]byte{byte(i)}, 900)
		want = append(append(want, p...), small...)
		must(t, w.Own(p, back), w.Own(small, back))
		for w.Flush() == vecio.ErrBlocked && step%5 == 0 {
		}
	}
	must(t, flushed(w))
	if !bytes.Equal(got, want) {
		t.Error("the pending bytes have changed")
	}
}
