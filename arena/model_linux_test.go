package arena_test

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/arena"
)

// A model has the documented state of an arena, by counting: which slots are out, their
// contents, and how many chunks each Local has.
type model struct {
	arena  *arena.Arena
	chunks int // of the budget
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
	hs := append([]arena.Handle{arena.Handle(rapid.Uint64().Draw(t, "any"))}, m.gone...)
	for j := range m.locals {
		if j != i {
			hs = append(hs, sorted(m.locals[j].out)...)
		}
	}
	h := rapid.SampledFrom(hs).Draw(t, "handle")
	if _, ok := m.locals[i].out[h]; ok {
		t.Skip("it is")
	}
	if _, err := m.arena.Local(i).Bytes(h); err != arena.ErrStale {
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
	if used := int64(m.used()) * arena.ChunkSize; s.Used != used || s.Budget != int64(m.chunks)*arena.ChunkSize {
		t.Fatalf("%d of %d bytes in use, want %d of %d chunks", s.Used, s.Budget, m.used(), m.chunks)
	}
}

// clean puts everything: nothing is left, and no slot was overwritten.
func (m *model) clean(t *rapid.T) {
	for i := range m.locals {
		for _, h := range sorted(m.locals[i].out) {
			m.checkContent(t, i, h, m.locals[i].out[h])
			if err := m.arena.Local(i).Put(h); err != nil {
				t.Fatal(err)
			}
		}
		m.arena.Local(i).Trim()
	}
	if s := m.arena.Stats(); s.Used != 0 {
		t.Fatalf("%d bytes in use at the end", s.Used)
	}
	if err := m.arena.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		chunks, locals := rapid.IntRange(1, 6).Draw(t, "chunks"), rapid.IntRange(1, 3).Draw(t, "locals")
		a, err := arena.New(&arena.Config{Size: int64(chunks) * arena.ChunkSize, Locals: locals, Pages: arena.PagesPlain})
		if err != nil {
			t.Fatal(err)
		}
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
