package arena_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/zero"
	"pgregory.net/rapid"
)

// plain is an arena of ordinary pages, which do not cost much to make.
func plain(t testing.TB, chunks, locals int) *arena.Arena {
	t.Helper()
	return open(t, &arena.Config{Size: int64(chunks) * arena.ChunkSize, Locals: locals, Pages: arena.PagesPlain})
}

// open makes an arena that the test has to leave with every slot put.
func open(t testing.TB, c *arena.Config) *arena.Arena {
	t.Helper()
	a := must.Get(arena.New(c))(t)
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

// TestSizesRefused: TestModel has the sizes that are lent.
func TestSizesRefused(t *testing.T) {
	l := plain(t, 9, 1).Local(0)
	for _, size := range []int{math.MinInt, -1, 0, 65537, math.MaxInt} {
		must.Fail(l.Get(size, arena.Other))(t, arena.ErrSize)
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

// TestCloseBesidePages: the kind of memory may be asked for while the arena is closed.
func TestCloseBesidePages(t *testing.T) {
	a := plain(t, 1, 2)
	done := make(chan arena.Pages)
	go func() { done <- a.Pages() }()
	must.Do(t, a.Close())
	if during := <-done; during != arena.PagesPlain || a.Pages() != during {
		t.Errorf("pages while it is closed: %v, then %v", during, a.Pages())
	}
}

func TestClose(t *testing.T) {
	a := plain(t, 2, 2)
	h, i := get(t, a.Local(0), 1, arena.Other), get(t, a.Local(1), 1, arena.Read)
	if err := a.Close(); err == nil || !strings.Contains(err.Error(), "2 slots are still in use") {
		t.Errorf("with two slots out: %v", err)
	}
	put(t, a.Local(0), h)
	if b, err := a.Local(1).Bytes(i); err != nil || b[255] != b[254] {
		t.Errorf("after a Close that was refused: %v", err)
	}
	put(t, a.Local(1), i)
	must.Do(t, a.Close())
	must.Is(t, a.Close(), os.ErrClosed)
	for n := range a.Locals() {
		l := a.Local(n)
		if _, err := l.Get(1, arena.Other); err != arena.ErrClosed {
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
		"Locals is -1; use 1 to":     {Locals: -1},
		"Locals is 5000":             {Locals: 5000},
		"Size is -1 bytes; use 1":    {Size: -1},
		"Size is 9223372036854775":   {Size: math.MaxInt64},
		"Pages is 4; use PagesAuto":  {Pages: 4},
		"Pages is -1":                {Pages: -1},
		"Nodes has 1 entries for 2 ": {Locals: 2, Nodes: []int{0}},
		"Nodes[1] is -":              {Locals: 2, Nodes: []int{0, -2}},
		"Nodes[0] is 1024; use 0 to": {Locals: 1, Nodes: []int{1024}},
	} {
		if a, err := arena.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", *c, err, want)
			if err == nil {
				a.Close()
			}
		}
	}
}

// TestRelease: a slot comes back by any piece that begins in it, and nothing else does.
func TestRelease(t *testing.T) {
	a := plain(t, 4, 2)
	l, other := a.Local(0), a.Local(1)
	for _, size := range []int{256, 1000, 4096, arena.MaxSlot} {
		for _, from := range []int{0, 1, 255} {
			first, second := get(t, l, size, arena.Residue), get(t, l, size, arena.Residue)
			b := must.Get(l.Bytes(second))(t)
			l.Release(b[from:])
			if _, err := l.Bytes(second); err != arena.ErrStale {
				t.Errorf("slot of %d bytes, released from %d on: %v", size, from, err)
			}
			b = must.Get(l.Bytes(first))(t)
			last := len(b) - 1
			l.Release(b[last:last:last]) // no piece at all
			must.Get(l.Bytes(first))(t)
			l.Release(b[last:])
			if _, err := l.Bytes(first); err != arena.ErrStale {
				t.Errorf("slot of %d bytes, released from its last one on: %v", size, err)
			}
		}
	}
	l.Flush()
	before := l.Stats().Stale
	foreign := get(t, other, 256, arena.Other)
	b := must.Get(other.Bytes(foreign))(t)
	for _, p := range [][]byte{nil, make([]byte, 10), b} {
		l.Release(p)
	}
	l.Flush()
	if n := l.Stats().Stale - before; n != 3 {
		t.Errorf("%d of 3 foreign pieces counted", n)
	}
	put(t, other, foreign)
	if n := testing.AllocsPerRun(100, func() {
		b := must.Get(l.Bytes(get(t, l, 5000, arena.Residue)))(t)
		l.Release(b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A player leases and puts slots of one Local at random. It marks them with its number,
// and checks that no other player has written to them.
type player struct {
	local *arena.Local
	mark  byte
	r     *rand.Rand
	out   []arena.Handle
}

func (p *player) step(t *testing.T) {
	if len(p.out) > 0 && p.r.IntN(5) < 2 {
		p.put(t, p.r.IntN(len(p.out)))
		return
	}
	h, err := p.local.Get(1+p.r.IntN(arena.MaxSlot>>p.r.IntN(9)), arena.Purpose(p.r.IntN(arena.Purposes)))
	if err == arena.ErrBudget {
		for len(p.out) > 3 {
			p.put(t, len(p.out)-1)
		}
		p.local.Trim()
		runtime.Gosched()
		return
	}
	b, err := p.local.Bytes(h)
	if err != nil {
		t.Error(err)
		return
	}
	b[0], b[len(b)-1] = p.mark, p.mark
	p.out = append(p.out, h)
}

func (p *player) put(t *testing.T, i int) {
	h := p.out[i]
	p.out[i] = p.out[len(p.out)-1]
	p.out = p.out[:len(p.out)-1]
	b, err := p.local.Bytes(h)
	if err != nil || b[0] != p.mark || b[len(b)-1] != p.mark {
		t.Errorf("the slot at %d is not as it was left: %v", h.Offset(), err)
	}
	if err := p.local.Put(h); err != nil {
		t.Error(err)
	}
}

// TestLocalsTogether: Locals that compete for the chunks never have one slot twice, nor
// more than the budget together. The statistics may be read meanwhile. In the end
// nothing is missing.
func TestLocalsTogether(t *testing.T) {
	const chunks, locals = 40, 4
	steps := 20_000
	if arena.Invariants {
		steps /= 10 // each fills a slot
	}
	a := plain(t, chunks, locals)
	var wg sync.WaitGroup
	for i := range locals {
		wg.Go(func() {
			p := &player{local: a.Local(i), mark: byte(i + 1), r: rand.New(rand.NewPCG(uint64(i), 4))}
			for range steps {
				p.step(t)
			}
			for len(p.out) > 0 {
				p.put(t, 0)
			}
			p.local.Trim()
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			runtime.Gosched()
		}
		s := a.Stats()
		if s.Used < 0 || s.Used > s.Budget || s.Peak > s.Budget {
			t.Errorf("%d bytes in use, at most %d, of %d", s.Used, s.Peak, s.Budget)
		}
	}
	s := a.Stats()
	t.Logf("%+v", s)
	if s.Used != 0 || s.Stale != 0 {
		t.Errorf("%d bytes in use at the end, %d handles refused", s.Used, s.Stale)
	}
	for p, u := range s.ByPurpose {
		if u.Out != 0 || u.Bytes != 0 || u.Gets == 0 {
			t.Errorf("%v: %+v", arena.Purpose(p), u)
		}
	}
}

// scanned returns how many bytes of the heap the collector has to look through.
func scanned() uint64 {
	runtime.GC()
	s := []metrics.Sample{{Name: "/gc/scan/heap:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// TestNothingIsScanned: the collector scans neither the memory nor the records of its
// slots, whatever is out. It scans a thousandth of the size at most. As many buffers of
// the heap with a table of them would be 24 bytes each.
func TestNothingIsScanned(t *testing.T) {
	const size, slot = 32 << 20, 1024
	before := scanned()
	a := open(t, &arena.Config{Size: size, Locals: 1})
	l := a.Local(0)
	handles := make([]arena.Handle, size/slot)
	rings := make([]arena.Ring, size/slot)
	for i := range handles {
		handles[i] = get(t, l, slot, arena.Residue)
		b := must.Get(l.Bytes(handles[i]))(t)
		rings[i].Write(b, []byte("left behind"))
	}
	if after := scanned(); after > before+size/1000 {
		t.Errorf("%d bytes more are scanned for an arena of %d", after-before, size)
	}
	for i, h := range handles {
		if rings[i].Len() != 11 {
			t.Fatal("rings were lost")
		}
		put(t, l, h)
	}
	runtime.KeepAlive(rings)
}

// TestAllocs: nothing is allocated, whether a chunk is taken or not, or refused.
func TestAllocs(t *testing.T) {
	l := plain(t, 2, 1).Local(0)
	kept := get(t, l, 256, arena.Other)
	defer func() { put(t, l, kept) }()
	var ring arena.Ring
	for name, op := range map[string]func(){
		"same chunk": func() { put(t, l, get(t, l, 100, arena.Residue)) },
		"new chunk":  func() { put(t, l, get(t, l, 5000, arena.Other)); l.Trim() },
		"refused": func() {
			h := get(t, l, arena.MaxSlot, arena.Read)
			if _, err := l.Get(arena.MaxSlot, arena.Read); err != arena.ErrBudget {
				t.Error(err)
			}
			put(t, l, h)
			if l.Put(h) != arena.ErrStale {
				t.Error("put twice")
			}
		},
		"ring": func() {
			b := must.Get(l.Bytes(kept))(t)
			ring.Write(b, b[:200])
			first, second := ring.Peek(b)
			ring.Discard(len(first) + len(second))
		},
		"flush": func() { l.Flush(); l.Stats() },
	} {
		if n := testing.AllocsPerRun(500, op); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestZeroValues: methods of zero values return.
func TestZeroValues(t *testing.T) {
	zero.Methods(t, map[string]string{
		"Arena.Local": "there is no Local", "Ring.Peek": "there is no slot", "Ring.Space": "there is no slot",
		"Ring.Read": "there is no slot", "Ring.Write": "there is no slot",
	}, new(arena.Arena), new(arena.Local), new(arena.Ring), new(arena.Handle), new(arena.Pages), new(arena.Purpose))
}

// A model has the documented state of an arena, by counting: which slots are out, their
// contents, and how many chunks each Local has.
type model struct {
	arena  *arena.Arena
	chunks int // of the budget
	peak   int // chunks in use, at most
	locals []modelLocal
	gone   []arena.Handle // put
	serial byte
}

type modelLocal struct {
	out    map[arena.Handle]modelSlot
	by     [arena.Purposes]arena.Usage
	stale  int64
	chunks map[int64]*modelChunk // by number
}

type modelSlot struct {
	size    int
	purpose arena.Purpose
	fill    byte
}

type modelChunk struct {
	size int // of its slots
	out  int
}

func (m *model) used() (n int) {
	for _, l := range m.locals {
		n += len(l.chunks)
	}
	return n
}

// slotSize is the size of the slot for n bytes, by counting up.
func slotSize(n int) int {
	size := arena.MinSlot
	for size < n {
		size *= 2
	}
	return size
}

// has reports whether the Local has a slot of that size without another chunk, and
// whether it has an empty one.
func (l *modelLocal) has(size int) (room, empty bool) {
	for _, c := range l.chunks {
		room = room || c.out > 0 && c.size == size && c.out < arena.ChunkSize/size
		empty = empty || c.out == 0
	}
	return room, empty
}

func (m *model) get(t *rapid.T) {
	i := rapid.IntRange(0, len(m.locals)-1).Draw(t, "local")
	n := rapid.OneOf(rapid.IntRange(1, 1024), rapid.IntRange(1, arena.MaxSlot), rapid.SampledFrom([]int{arena.MaxSlot, arena.MaxSlot / 2, arena.MaxSlot / 4})).Draw(t, "size")
	p := arena.Purpose(rapid.IntRange(0, arena.Purposes).Draw(t, "purpose"))
	l, size := &m.locals[i], slotSize(n)
	h, err := m.arena.Local(i).Get(n, p)
	p = min(p, arena.Other)
	room, empty := l.has(size)
	if !room && !empty && m.used() == m.chunks {
		if err != arena.ErrBudget || h != 0 {
			t.Fatalf("get of %d: %#x, %v; want ErrBudget", n, uint64(h), err)
		}
		l.by[p].Refused++
		return
	}
	if err != nil {
		t.Fatalf("get of %d with %d of %d chunks in use: %v", n, m.used(), m.chunks, err)
	}
	m.account(t, l, h, size)
	m.serial++
	l.out[h] = modelSlot{size, p, m.serial}
	l.by[p].Gets++
	l.by[p].Out++
	l.by[p].Bytes += int64(size)
	b, err := m.arena.Local(i).Bytes(h)
	if err != nil || len(b) != size || cap(b) != size {
		t.Fatalf("%d of %d bytes, %v; want %d", len(b), cap(b), err, size)
	}
	for j := range b {
		b[j] = m.serial
	}
}

// account notes the slot in its chunk, which has to be one where it may be.
func (m *model) account(t *rapid.T, l *modelLocal, h arena.Handle, size int) {
	if h.Offset()%int64(size) != 0 {
		t.Fatalf("a slot of %d at %d", size, h.Offset())
	}
	n := h.Offset() / arena.ChunkSize
	for i := range m.locals {
		if c := m.locals[i].chunks[n]; c != nil && &m.locals[i] != l {
			t.Fatalf("chunk %d is two Locals'", n)
		}
	}
	room, empty := l.has(size)
	c := l.chunks[n]
	switch {
	case c == nil && (room || empty):
		t.Fatalf("another chunk for a slot of %d, without need", size)
	case c == nil:
		c = &modelChunk{size: size}
		l.chunks[n] = c
	case c.out == 0 && room:
		t.Fatalf("the empty chunk for a slot of %d, without need", size)
	case c.out == 0:
		c.size = size
	case c.size != size:
		t.Fatalf("a slot of %d in a chunk of %d", size, c.size)
	}
	c.out++
}

func (m *model) put(t *rapid.T) {
	i := rapid.IntRange(0, len(m.locals)-1).Draw(t, "local")
	l := &m.locals[i]
	hs := sorted(l.out)
	if len(hs) == 0 {
		t.Skip("none is out")
	}
	h := rapid.SampledFrom(hs).Draw(t, "handle")
	s := l.out[h]
	m.checkContent(t, i, h, s)
	if err := m.arena.Local(i).Put(h); err != nil {
		t.Fatalf("put of %#x: %v", uint64(h), err)
	}
	delete(l.out, h)
	m.gone = append(m.gone, h)
	l.by[s.purpose].Out--
	l.by[s.purpose].Bytes -= int64(s.size)
	n := h.Offset() / arena.ChunkSize
	_, empty := l.has(s.size)
	c := l.chunks[n]
	if c.out--; c.out == 0 && empty {
		delete(l.chunks, n) // one is enough
	}
}

func (m *model) checkContent(t *rapid.T, i int, h arena.Handle, s modelSlot) {
	b, err := m.arena.Local(i).Bytes(h)
	if err != nil || len(b) != s.size || !bytes.Equal(b, bytes.Repeat([]byte{s.fill}, s.size)) {
		t.Fatalf("the slot of %d at %d: %d bytes, %v, or others than were written", s.size, h.Offset(), len(b), err)
	}
}

// refuse gives a Local a handle that is none of its own.
func (m *model) refuse(t *rapid.T) {
	i := rapid.IntRange(0, len(m.locals)-1).Draw(t, "local")
	hs := append([]arena.Handle{0, arena.Handle(rapid.Uint64().Draw(t, "any"))}, m.gone...)
	for j := range m.locals {
		for _, h := range sorted(m.locals[j].out) { // and its neighbours, generations and places
			hs = append(hs, h, h+1<<32, h-1<<32, h+1, h+2, h|0xffff_ffff)
		}
	}
	h := rapid.SampledFrom(hs).Draw(t, "handle")
	if _, ok := m.locals[i].out[h]; ok {
		t.Skip("it is")
	}
	if b, err := m.arena.Local(i).Bytes(h); err != arena.ErrStale || b != nil {
		t.Fatalf("bytes of %#x: %v", uint64(h), err)
	}
	if err := m.arena.Local(i).Put(h); err != arena.ErrStale {
		t.Fatalf("put of %#x: %v", uint64(h), err)
	}
	m.locals[i].stale += 2
}

func (m *model) trim(t *rapid.T) {
	i := rapid.IntRange(0, len(m.locals)-1).Draw(t, "local")
	m.arena.Local(i).Trim()
	for n, c := range m.locals[i].chunks {
		if c.out == 0 {
			delete(m.locals[i].chunks, n)
		}
	}
}

// check compares the account with the arena's.
func (m *model) check(t *rapid.T) {
	var want arena.LocalStats
	for i := range m.locals {
		m.arena.Local(i).Flush()
		l := arena.LocalStats{ByPurpose: m.locals[i].by, Stale: m.locals[i].stale}
		if got := m.arena.Local(i).Stats(); got != l {
			t.Fatalf("Local %d: %+v, want %+v", i, got, l)
		}
		want.Stale += l.Stale
		for p, u := range l.ByPurpose {
			w := &want.ByPurpose[p]
			w.Gets, w.Out, w.Bytes, w.Refused = w.Gets+u.Gets, w.Out+u.Out, w.Bytes+u.Bytes, w.Refused+u.Refused
		}
	}
	s := m.arena.Stats()
	if s.LocalStats != want {
		t.Fatalf("%+v, want %+v", s.LocalStats, want)
	}
	m.peak = max(m.peak, m.used())
	if used, peak := int64(m.used())*arena.ChunkSize, int64(m.peak)*arena.ChunkSize; s.Used != used || s.Peak != peak || s.Budget != int64(m.chunks)*arena.ChunkSize {
		t.Fatalf("%d of %d bytes in use, %d at most, want %d of %d chunks, %d at most", s.Used, s.Budget, s.Peak, m.used(), m.chunks, m.peak)
	}
}

// clean puts everything: nothing is left, and no slot was overwritten.
func (m *model) clean(t *rapid.T) {
	for i := range m.locals {
		for _, h := range sorted(m.locals[i].out) {
			m.checkContent(t, i, h, m.locals[i].out[h])
			must.Do(t, m.arena.Local(i).Put(h))
		}
		m.arena.Local(i).Trim()
	}
	if s := m.arena.Stats(); s.Used != 0 {
		t.Fatalf("%d bytes in use at the end", s.Used)
	}
	must.Do(t, m.arena.Close())
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		chunks, locals := rapid.IntRange(1, 6).Draw(t, "chunks"), rapid.IntRange(1, 3).Draw(t, "locals")
		a := must.Get(arena.New(&arena.Config{Size: int64(chunks) * arena.ChunkSize, Locals: locals, Pages: arena.PagesPlain}))(t)
		m := &model{arena: a, chunks: chunks}
		for range locals {
			m.locals = append(m.locals, modelLocal{out: map[arena.Handle]modelSlot{}, chunks: map[int64]*modelChunk{}})
		}
		t.Repeat(map[string]func(*rapid.T){
			"get": m.get, "get more": m.get, "put": m.put, "refuse": m.refuse, "trim": m.trim, "": m.check,
		})
		m.clean(t)
	})
}

func sorted(out map[arena.Handle]modelSlot) []arena.Handle {
	hs := make([]arena.Handle, 0, len(out))
	for h := range out {
		hs = append(hs, h)
	}
	slices.Sort(hs)
	return hs
}
