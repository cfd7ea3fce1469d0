//go:build invariants

package arena_test

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/place"
)

// writtenTo returns the text of Get's panic, if it panics.
func writtenTo(l *arena.Local, size int) (h arena.Handle, panicked string) {
	defer func() {
		if r := recover(); r != nil {
			panicked = fmt.Sprint(r)
		}
	}()
	h, err := l.Get(size, arena.Other)
	if err != nil {
		panicked = err.Error()
	}
	return h, panicked
}

// TestPoison: the next Get detects a write to a slot after Put, also if the chunk is
// cut anew. It detects a write beyond the end of a slot as well.
func TestPoison(t *testing.T) {
	for _, at := range []int{0, 100, 255} {
		for _, size := range []int{256, 1024} {
			l := ownArena(t).Local(0)
			h := get(t, l, 256, arena.Other)
			b := must.Get(l.Bytes(h))(t)
			put(t, l, h)
			b[at]++
			want := fmt.Sprintf("byte %d of the slot of %d bytes at offset 0 was written to", at, size)
			if _, got := writtenTo(l, size); !strings.Contains(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
}

// TestPoisonPlaces: the panic names the place of the release, by Put and by Release, also of the
// second of two slots that are one now, and for memory of which no slot was out.
func TestPoisonPlaces(t *testing.T) {
	l := ownArena(t).Local(0)
	first, second := get(t, l, 256, arena.Other), get(t, l, 256, arena.Other)
	b := must.Get(l.Bytes(second))(t)
	put(t, l, first)
	released := place.Next()
	l.Release(b[10:20])
	b[7]++
	_, got := writtenTo(l, 512)
	place.Named(t, got, "byte 263 of the slot of 512 bytes at offset 0 was written to", "\treleased at "+released+" (")

	l = ownArena(t).Local(0)
	h := get(t, l, 256, arena.Other)
	b = must.Get(l.Bytes(h))(t)
	unsafe.Slice(&b[0], 257)[256]++ // beyond its end
	_, got = writtenTo(l, 256)
	place.Named(t, got, "byte 0 of the slot of 256 bytes at offset 256", "no slot of these bytes was out before")
	put(t, l, h)
}

// TestPoisonAtClose: a write after the last release is found by Close, with the place of the release.
func TestPoisonAtClose(t *testing.T) {
	a := ownArena(t)
	l := a.Local(0)
	h := get(t, l, 1024, arena.Other)
	b := must.Get(l.Bytes(h))(t)
	released := place.Next()
	must.Do(t, l.Put(h))
	b[1000]++
	closed := func() { a.Close() }
	place.Named(t, place.Panic(closed), "at offset 768", "\treleased at "+released+" (")
	b[1000]--
	if got := place.Panic(closed); got != "" {
		t.Errorf("nothing is written to: %s", got)
	}
}

// TestPoisonClean: writes while the slot is out are permitted, and a leased slot is
// filled with the pattern.
func TestPoisonClean(t *testing.T) {
	l := ownArena(t).Local(0)
	for _, size := range []int{256, 256, 65536, 512, 65536} {
		h, panicked := writtenTo(l, size)
		if panicked != "" {
			t.Fatal(panicked)
		}
		b := must.Get(l.Bytes(h))(t)
		for i := range b {
			if b[i] != 0xdb {
				t.Fatalf("byte %d of %d is %#x", i, size, b[i])
			}
			b[i] = byte(i)
		}
		put(t, l, h)
	}
}

// ownArena is one that Close may not close: it looks for the same writes.
func ownArena(t *testing.T) *arena.Arena {
	a := must.Get(arena.New(&arena.Config{Size: arena.ChunkSize, Locals: 1, Pages: arena.PagesPlain}))(t)
	t.Cleanup(func() { place.Panic(func() { a.Close() }) })
	return a
}
