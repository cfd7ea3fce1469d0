package arena_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/penstock/penstock/arena"
)

// plain is an arena of ordinary pages, which do not cost much to make.
func plain(t testing.TB, chunks, locals int) *arena.Arena {
	t.Helper()
	return open(t, &arena.Config{Size: int64(chunks) * arena.ChunkSize, Locals: locals, Pages: arena.PagesPlain})
}

// open makes an arena that the test has to leave with every slot put.
func open(t testing.TB, c *arena.Config) *arena.Arena {
	t.Helper()
	a, err := arena.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil && !errors.Is(err, arena.ErrClosed) {
			t.Error(err)
		}
	})
	return a
}

func get(t testing.TB, l *arena.Local, size int, p arena.Purpose) arena.Handle {
	t.Helper()
	h, err := l.Get(size, p)
	if err != nil {
		t.Fatalf("get of %d bytes: %v", size, err)
	}
	return h
}

func put(t testing.TB, l *arena.Local, hs ...arena.Handle) {
	t.Helper()
	for _, h := range hs {
		if err := l.Put(h); err != nil {
			t.Fatalf("put of %#x: %v", uint64(h), err)
		}
	}
}

func TestSizes(t *testing.T) {
	a := plain(t, 9, 1)
	l := a.Local(0)
	for _, c := range []struct{ size, slot int }{
		{1, 256},
		{255, 256},
		{256, 256},
		{257, 512},
		{512, 512},
		{513, 1024},
		{1025, 2048},
		{4096, 4096},
		{4097, 8192},
		{16384, 16384},
		{16385, 32768},
		{65535, 65536},
		{65536, 65536},
	} {
		h := get(t, l, c.size, arena.Other)
		b, err := l.Bytes(h)
		if err != nil || len(b) != c.slot || cap(b) != c.slot {
			t.Errorf("%d bytes: a slot of %d with a capacity of %d, %v; want %d", c.size, len(b), cap(b), err, c.slot)
		}
		put(t, l, h)
	}
	for _, size := range []int{math.MinInt, -1, 0, 65537, math.MaxInt} {
		if _, err := l.Get(size, arena.Other); err != arena.ErrSize {
			t.Errorf("%d bytes: %v, want ErrSize", size, err)
		}
	}
}

func TestStale(t *testing.T) {
	a := plain(t, 4, 2)
	l, other := a.Local(0), a.Local(1)
	h := get(t, l, 300, arena.Residue)
	foreign := get(t, other, 300, arena.Residue)
	stale := map[string]arena.Handle{
		"zero":                0,
		"another Local's":     foreign,
		"next generation":     h + 1<<32,
		"previous generation": h - 1<<32,
		"inside of a slot":    h + 1,
		"never out":           h + 2,
		"past the end":        h | 0xffff_ffff,
	}
	check := func(when string) {
		t.Helper()
		for name, s := range stale {
			if b, err := l.Bytes(s); err != arena.ErrStale || b != nil {
				t.Errorf("%s: %s: Bytes: %d bytes, %v", when, name, len(b), err)
			}
			if err := l.Put(s); err != arena.ErrStale {
				t.Errorf("%s: %s: Put: %v", when, name, err)
			}
		}
	}
	check("while it is out")
	put(t, l, h)
	stale["put"] = h
	delete(stale, "next generation") // which that Get will give
	check("after Put")
	again := get(t, l, 300, arena.Residue)
	if again.Offset() != h.Offset() {
		t.Errorf("the slot at %d was put, and the one at %d comes next", h.Offset(), again.Offset())
	}
	check("while it is out again")
	put(t, l, again)
	large := get(t, l, arena.MaxSlot, arena.Residue) // the same chunk, cut anew
	if large.Offset() != h.Offset() {
		t.Errorf("the chunk at %d is empty, and the one at %d is cut", h.Offset(), large.Offset())
	}
	check("in a slot of another size")
	put(t, l, large)
	l.Trim()
	check("in a chunk that was given back")
	elsewhere := get(t, other, arena.MaxSlot, arena.Residue) // of whichever chunk
	check("in a chunk that another Local has")
	put(t, other, elsewhere, foreign)
	l.Flush()
	if s := l.Stats(); s.Stale < int64(2*len(stale)) {
		t.Errorf("%d stale handles counted", s.Stale)
	}
}

// TestGenerationWraps: the generation after the last is the first, and none is 0,
// which would make the zero Handle a good one.
func TestGenerationWraps(t *testing.T) {
	l := plain(t, 1, 1).Local(0)
	old := get(t, l, 256, arena.Other)
	if old == 0 {
		t.Error("the first handle is 0")
	}
	last := l.SetGeneration(old, 1<<32-1)
	put(t, l, last)
	h := get(t, l, 256, arena.Other)
	if h.Offset() != 0 || h != 1<<32 {
		t.Errorf("after the last generation comes %#x", uint64(h))
	}
	for _, s := range []arena.Handle{0, last} {
		if _, err := l.Bytes(s); err != arena.ErrStale {
			t.Errorf("%#x: %v", uint64(s), err)
		}
	}
	put(t, l, h)
}

// TestBudget: one Local or several can lease exactly the configured size, in slots of
// any size. One Put makes room for one Get.
func TestBudget(t *testing.T) {
	for _, size := range []int{256, 4096, 65536} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			const chunks = 3
			a := plain(t, chunks, 2)
			one, two := a.Local(0), a.Local(1)
			var hs []arena.Handle
			for range chunks * arena.ChunkSize / size {
				hs = append(hs, get(t, one, size, arena.Residue))
			}
			for range 2 {
				for _, l := range []*arena.Local{one, two} {
					if _, err := l.Get(1, arena.Residue); err != arena.ErrBudget {
						t.Errorf("beyond the budget: %v", err)
					}
				}
				put(t, one, hs[0])
				hs[0] = get(t, one, size, arena.Residue)
			}
			put(t, one, hs...)
			one.Trim()
			for i := range hs {
				hs[i] = get(t, two, size, arena.Residue) // all of it
			}
			two.Flush()
			s := a.Stats()
			if want := int64(chunks * arena.ChunkSize); s.Budget != want || s.Used != want || s.Peak != want || s.ByPurpose[arena.Residue].Bytes != want {
				t.Errorf("%+v, want all of %d in use", s, want)
			}
			put(t, two, hs...)
			two.Trim()
			if s := a.Stats(); s.Used != 0 || s.Peak != s.Budget || s.ByPurpose[arena.Residue].Out != 0 {
				t.Errorf("%+v, want none in use", s)
			}
		})
	}
}

// TestKeepsOneEmptyChunk: a slot that comes and goes takes nothing from the arena,
// and a Local withholds one chunk at most from the others.
func TestKeepsOneEmptyChunk(t *testing.T) {
	a := plain(t, 4, 1)
	l := a.Local(0)
	var hs []arena.Handle
	for _, size := range []int{256, 1024, 65536} {
		hs = append(hs, get(t, l, size, arena.Other))
	}
	if s := a.Stats(); s.Used != 3*arena.ChunkSize {
		t.Errorf("%d bytes for three sizes", s.Used)
	}
	put(t, l, hs...)
	if s := a.Stats(); s.Used != arena.ChunkSize {
		t.Errorf("%d bytes are kept", s.Used)
	}
	for _, size := range []int{256, 65536, 8192} {
		put(t, l, get(t, l, size, arena.Other))
		if s := a.Stats(); s.Used != arena.ChunkSize || s.Peak != 3*arena.ChunkSize {
			t.Errorf("%d bytes, at most %d", s.Used, s.Peak)
		}
	}
}

// TestEmptyChunkGoesLast: while a chunk of the class is in use that has room, the
// empty one is left for others.
func TestEmptyChunkGoesLast(t *testing.T) {
	const half = arena.ChunkSize / 2
	a := plain(t, 2, 1)
	l := a.Local(0)
	first, second, third := get(t, l, half, arena.Other), get(t, l, half, arena.Other), get(t, l, half, arena.Other)
	put(t, l, first, second) // the first chunk has room before, then the second one, and is empty
	fourth := get(t, l, half, arena.Other)
	if fourth.Offset()/arena.ChunkSize != third.Offset()/arena.ChunkSize {
		t.Errorf("slots at %d and %d", third.Offset(), fourth.Offset())
	}
	large := get(t, l, arena.ChunkSize, arena.Other)
	put(t, l, third, fourth, large)
}

// TestCloseBesidePages: the kind of memory may be asked for while the arena is closed.
func TestCloseBesidePages(t *testing.T) {
	a := plain(t, 1, 2)
	done := make(chan arena.Pages)
	go func() { done <- a.Pages() }()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if during := <-done; during != arena.PagesPlain || a.Pages() != during {
		t.Errorf("pages while it is closed: %v, then %v", during, a.Pages())
	}
}

func TestClose(t *testing.T) {
	a := plain(t, 2, 2)
	h, i := get(t, a.Local(0), 1, arena.Peek), get(t, a.Local(1), 1, arena.Read)
	if err := a.Close(); err == nil || !strings.Contains(err.Error(), "slots are out: 2") {
		t.Errorf("with two slots out: %v", err)
	}
	put(t, a.Local(0), h)
	if b, err := a.Local(1).Bytes(i); err != nil || b[255] != b[254] {
		t.Errorf("after a Close that was refused: %v", err)
	}
	put(t, a.Local(1), i)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := a.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a second Close: %v", err)
	}
	for n := range a.Locals() {
		l := a.Local(n)
		if _, err := l.Get(1, arena.Peek); err != arena.ErrClosed {
			t.Errorf("Get after Close: %v", err)
		}
		if _, err := l.Bytes(h); err != arena.ErrStale {
			t.Errorf("Bytes after Close: %v", err)
		}
		if err := l.Put(h); err != arena.ErrStale {
			t.Errorf("Put after Close: %v", err)
		}
	}
	if s := a.Stats(); s.Used != 0 {
		t.Errorf("%d bytes in use after Close", s.Used)
	}
}

func TestStats(t *testing.T) {
	a := plain(t, 2, 2)
	one, two := a.Local(0), a.Local(1)
	hs := []arena.Handle{get(t, one, 256, arena.Residue), get(t, one, 200, arena.Residue), get(t, one, 256, 99)}
	h := get(t, two, 60000, arena.Residue)
	if _, err := two.Get(1, arena.Peek); err != arena.ErrBudget {
		t.Fatal(err)
	}
	put(t, one, hs[0])
	one.Flush()
	two.Flush()
	s := a.Stats()
	want := [arena.Purposes]arena.Usage{
		arena.Residue: {Gets: 3, Out: 2, Bytes: 256 + 65536},
		arena.Peek:    {Refused: 1},
		arena.Other:   {Gets: 1, Out: 1, Bytes: 256},
	}
	if s.ByPurpose != want || s.Stale != 0 {
		t.Errorf("%+v, want %+v", s.ByPurpose, want)
	}
	put(t, one, hs[1:]...)
	put(t, two, h)
}

// TestStatsFlush: a busy Local publishes its counts without a call of Flush.
func TestStatsFlush(t *testing.T) {
	l := plain(t, 1, 1).Local(0)
	for range 1000 {
		put(t, l, get(t, l, 1, arena.Read))
	}
	if n := l.Stats().ByPurpose[arena.Read].Gets; n < 1000-64 || n > 1000 {
		t.Errorf("%d of 1,000 slots published", n)
	}
}

func TestConfigRefused(t *testing.T) {
	for want, c := range map[string]*arena.Config{
		"-1 locals; give 1 to":       {Locals: -1},
		"5000 locals":                {Locals: 5000},
		"size of -1 bytes; give 1":   {Size: -1},
		"size of 9223372036854775":   {Size: math.MaxInt64},
		"no such kind of pages: 4":   {Pages: 4},
		"no such kind of pages: -1":  {Pages: -1},
		"1 nodes for 2 locals; give": {Locals: 2, Nodes: []int{0}},
		"local 1 is to be on node -": {Locals: 2, Nodes: []int{0, -2}},
		"on node 1024; give 0 to":    {Locals: 1, Nodes: []int{1024}},
	} {
		if a, err := arena.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", *c, err, want)
			if err == nil {
				a.Close()
			}
		}
	}
}
