package arena_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/testutil/leak"
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
	if m.ring.Len() != len(m.want) {
		t.Fatalf("%d bytes, want %d", m.ring.Len(), len(m.want))
	}
}

func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &ringModel{slot: make([]byte, 1<<rapid.IntRange(0, 9).Draw(t, "shift"))}
		m.ring = arena.RingAt(rapid.Uint32().Draw(t, "offset")) // any, also where it wraps
		t.Repeat(map[string]func(*rapid.T){
			"write": m.write, "writev": m.writev, "": m.check,
		})
	})
}

func TestRingMisuse(t *testing.T) {
	var r arena.Ring
	slot := make([]byte, 256)
	r.Write(slot, make([]byte, 10))
	for name, misuse := range map[string]func(){
		"more than there is":  func() { r.Discard(11) },
		"a negative number":   func() { r.Discard(-1) },
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

func TestMain(m *testing.M) { leak.Main(m) }
