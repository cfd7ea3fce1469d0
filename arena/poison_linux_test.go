//go:build invariants

package arena_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock/penstock/arena"
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
			b, err := l.Bytes(h)
			if err != nil {
				t.Fatal(err)
			}
			put(t, l, h)
			b[at]++
			want := fmt.Sprintf("byte %d of the slot of %d bytes at offset 0 was written to", at, size)
			if _, got := writtenTo(l, size); !strings.Contains(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
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
		b, err := l.Bytes(h)
		if err != nil {
			t.Fatal(err)
		}
		for i := range b {
			if b[i] != 0xdb {
				t.Fatalf("byte %d of %d is %#x", i, size, b[i])
			}
			b[i] = byte(i)
		}
		put(t, l, h)
	}
}

// ownArena is one that Close may refuse to close: a Get that panics is a slot out.
func ownArena(t *testing.T) *arena.Arena {
	a, err := arena.New(&arena.Config{Size: arena.ChunkSize, Locals: 1, Pages: arena.PagesPlain})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}
