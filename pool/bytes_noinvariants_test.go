//go:build !invariants

// The tests that the bookkeeping of the tag invariants would disturb.

package pool_test

import (
	"runtime"
	"testing"
	"weak"

	"github.com/penstock/penstock/pool"
)

func TestBytesRefusesForeign(t *testing.T) {
	b := newBytes(t, pool.BytesConfig{MinSize: 1 << 10, MaxSize: 64 << 10})
	own := mustGet(t, b, 4<<10)
	before := b.Stats()
	foreign := map[string][]byte{
		"nil":               nil,
		"no capacity":       {},
		"odd capacity":      make([]byte, 5000),
		"below the classes": make([]byte, 512),
		"above the classes": make([]byte, 128<<10),
		"sliced":            own[8:],
		"cut":               own[:10:10],
		"grown":             append(own[:cap(own):cap(own)], 1)[:3:4097],
	}
	for name, buf := range foreign {
		b.Put(buf)
		b.Discard(buf)
		for _, n := range []int{1, 4 << 10, 64 << 10} {
			if _, ok := b.TryGet(n); ok {
				t.Errorf("%s: a foreign slice of capacity %d came back", name, cap(buf))
			}
		}
	}
	after := b.Stats()
	if n := after.Foreign - before.Foreign; n != int64(2*len(foreign)) {
		t.Errorf("%d of %d foreign slices counted", n, 2*len(foreign))
	}
	if after.Live != 1 || after.Used != 4<<10 {
		t.Errorf("foreign slices changed the account: %+v", after)
	}
	b.Put(own)
}

func TestBytesAllocs(t *testing.T) {
	b := newBytes(t, pool.BytesConfig{MinSize: 1 << 10, MaxSize: 64 << 10, Budget: 64 << 10})
	b.Put(mustGet(t, b, 64<<10))
	for name, op := range map[string]func(){
		"hit": func() {
			buf, err := b.Get(64 << 10)
			if err != nil {
				t.Fatal(err)
			}
			b.Put(buf)
		},
		"foreign": func() { b.Put(nil) },
	} {
		if n := testing.AllocsPerRun(1000, op); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	buf := mustGet(t, b, 64<<10)
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := b.Get(1); err == nil {
			t.Fatal("Get beyond the budget succeeded")
		}
	}); n != 0 {
		t.Errorf("budget spent: %v allocations", n)
	}
	b.Put(buf)
}

// TestBytesLetGo holds that a pool which lends its headers by value keeps no copy
// of one: a buffer that has left it is the garbage collector's.
func TestBytesLetGo(t *testing.T) {
	b := newBytes(t, pool.BytesConfig{})
	// Several, so that they pass through more than one slot of the pool.
	idle := func() []weak.Pointer[byte] {
		var bufs [][]byte
		var ps []weak.Pointer[byte]
		for range 100 {
			bufs = append(bufs, mustGet(t, b, 64<<10))
		}
		for _, buf := range bufs {
			ps = append(ps, weak.Make(&buf[0]))
			b.Put(buf)
		}
		return ps
	}
	for name, drop := range map[string]func(){
		"discarded": func() {
			for {
				buf, ok := b.TryGet(64 << 10)
				if !ok {
					return
				}
				defer b.Discard(buf)
			}
		},
		"trimmed": func() { b.Trim(0) },
		"swept":   func() { b.Sweep(); b.Sweep() },
		"lost": func() {
			for ok := true; ok; {
				_, ok = b.TryGet(64 << 10)
			}
		},
	} {
		ps := idle()
		runtime.GC()
		runtime.GC()
		for i, p := range ps {
			if p.Value() == nil {
				t.Fatalf("%s: buffer %d was collected while idle", name, i)
			}
		}
		drop()
		for i, p := range ps {
			if !collected(p) {
				t.Errorf("%s: the pool keeps buffer %d alive", name, i)
				break
			}
		}
	}
	runtime.KeepAlive(b)
}
