package arena_test

import (
	"bytes"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/arena"
)

// A ringModel is a ring and the bytes that are to be in it.
type ringModel struct {
	ring arena.Ring
	slot []byte
	want []byte
	next byte
}

// fresh returns the next n bytes of a sequence whose period, 251, is no size of a
// slot, so that a byte in the wrong place is seen.
func (m *ringModel) fresh(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = m.next
		m.next = (m.next + 1) % 251
	}
	return b
}

func (m *ringModel) amount(t *rapid.T) int { return rapid.IntRange(0, len(m.slot)+3).Draw(t, "n") }

func (m *ringModel) write(t *rapid.T) {
	room := len(m.slot) - len(m.want)
	p := m.fresh(m.amount(t))
	n := m.ring.Write(m.slot, p)
	if n != min(room, len(p)) {
		t.Fatalf("%d of %d bytes written, there was room for %d", n, len(p), room)
	}
	m.want = append(m.want, p[:n]...)
}

func (m *ringModel) read(t *rapid.T) {
	p := make([]byte, m.amount(t))
	n := m.ring.Read(m.slot, p)
	if n != min(len(p), len(m.want)) || !bytes.Equal(p[:n], m.want[:n]) {
		t.Fatalf("%d bytes read, %v; want the first of %v", n, p[:n], m.want)
	}
	m.want = m.want[n:]
}

// readv fills some of both halves, as readv(2) does.
func (m *ringModel) readv(t *rapid.T) {
	first, second := m.ring.Space(m.slot)
	n := rapid.IntRange(0, len(first)+len(second)).Draw(t, "n")
	p := m.fresh(n)
	copy(second, p[copy(first, p):])
	m.ring.Filled(m.slot, n)
	m.want = append(m.want, p...)
}

// writev takes some of both halves, as writev(2) does.
func (m *ringModel) writev(t *rapid.T) {
	first, second := m.ring.Peek(m.slot)
	if got := append(bytes.Clone(first), second...); !bytes.Equal(got, m.want) {
		t.Fatalf("%v and %v, want %v", first, second, m.want)
	}
	n := rapid.IntRange(0, len(m.want)).Draw(t, "n")
	m.ring.Discard(n)
	m.want = m.want[n:]
}

func (m *ringModel) check(t *rapid.T) {
	if m.ring.Len() != len(m.want) || m.ring.Room(m.slot) != len(m.slot)-len(m.want) {
		t.Fatalf("%d bytes and room for %d, want %d of %d", m.ring.Len(), m.ring.Room(m.slot), len(m.want), len(m.slot))
	}
	a, b := m.ring.Peek(m.slot)
	c, d := m.ring.Space(m.slot)
	if len(a)+len(b)+len(c)+len(d) != len(m.slot) || len(b) > 0 && len(d) > 0 {
		t.Fatalf("halves of %d and %d, and of %d and %d", len(a), len(b), len(c), len(d))
	}
}

func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &ringModel{slot: make([]byte, 1<<rapid.IntRange(0, 9).Draw(t, "shift"))}
		m.ring = arena.RingAt(rapid.Uint32().Draw(t, "offset")) // any, also where it wraps
		t.Repeat(map[string]func(*rapid.T){
			"write": m.write, "read": m.read, "readv": m.readv, "writev": m.writev, "": m.check,
		})
	})
}

// TestRingWraps: nothing happens where the offsets wrap.
func TestRingWraps(t *testing.T) {
	r, slot := arena.RingAt(1<<32-100), make([]byte, 256)
	text := bytes.Repeat([]byte("0123456789"), 20)
	for range 10 {
		if n := r.Write(slot, text); n != len(text) {
			t.Fatalf("%d written", n)
		}
		got := make([]byte, 300)
		if n := r.Read(slot, got); !bytes.Equal(got[:n], text) {
			t.Fatalf("%q", got[:n])
		}
	}
}

func TestRingMisuse(t *testing.T) {
	var r arena.Ring
	slot := make([]byte, 256)
	r.Write(slot, make([]byte, 10))
	for name, misuse := range map[string]func(){
		"more than there is":  func() { r.Discard(11) },
		"a negative number":   func() { r.Discard(-1) },
		"more than fits":      func() { r.Filled(slot, 247) },
		"filled with less":    func() { r.Filled(slot, -1) },
		"no slot":             func() { r.Peek(nil) },
		"a slot that was cut": func() { r.Write(slot[:255], nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("went unnoticed")
				}
			}()
			misuse()
		})
	}
	if r.Len() != 10 {
		t.Errorf("%d bytes", r.Len())
	}
}

// TestRingSize: a ring is eight bytes.
func TestRingSize(t *testing.T) {
	if n := unsafe.Sizeof(arena.Ring{}); n != 8 {
		t.Errorf("%d bytes", n)
	}
}
