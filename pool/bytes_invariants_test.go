//go:build invariants

package pool_test

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/place"
	"github.com/penstock/penstock/pool"
)

func TestBytesInvariants(t *testing.T) {
	for name, misuse := range map[string]func(*pool.Bytes, []byte){
		"put twice":     func(b *pool.Bytes, own []byte) { b.Put(own); b.Put(own) },
		"put, discard":  func(b *pool.Bytes, own []byte) { b.Put(own); b.Discard(own) },
		"cut to class":  func(b *pool.Bytes, own []byte) { b.Put(own[:1024:1024]) },
		"odd":           func(b *pool.Bytes, own []byte) { b.Put(own[1:]) },
		"from nowhere":  func(b *pool.Bytes, _ []byte) { b.Put(make([]byte, 4096)) },
		"never its own": func(b *pool.Bytes, _ []byte) { b.Discard(make([]byte, 1024)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBytes(t, pool.BytesConfig{})
			own := mustGet(t, b, 4096)
			defer func() {
				if recover() == nil {
					t.Error("went unnoticed")
				}
			}()
			misuse(b, own)
		})
	}
}

// TestBytesPutTwicePlaces: the panic of a second Put names the places of both, until the buffer is
// leased again.
func TestBytesPutTwicePlaces(t *testing.T) {
	b := newBytes(t, pool.BytesConfig{})
	buf := mustGet(t, b, 4096)
	first := place.Next()
	b.Put(buf)
	var second string
	again := func() {
		second = place.Next()
		b.Put(buf)
	}
	got := place.Panic(again)
	place.Named(t, got, "\tput before at "+first+" (", "\tput at "+second+" (")
	if same := mustGet(t, b, 4096); &same[0] != &buf[0] {
		t.Fatal("another buffer")
	}
	if got := place.Panic(again); got != "" {
		t.Errorf("it is leased again: %s", got)
	}
}
