//go:build invariants

package pool_test

import (
	"testing"

	"github.com/penstock/penstock/pool"
)

// TestDoublePut verifies that an item cannot be put twice, whatever points to it.
func TestDoublePut(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		for _, maxIdle := range []int{10, 2000} {
			t.Run("pointer", func(t *testing.T) { doublePut(t, v, maxIdle, func() *int { return new(int) }, true) })
			t.Run("slice", func(t *testing.T) { doublePut(t, v, maxIdle, func() []byte { return make([]byte, 9) }, true) })
			t.Run("channel", func(t *testing.T) { doublePut(t, v, maxIdle, func() chan int { return make(chan int) }, true) })
			t.Run("map", func(t *testing.T) { doublePut(t, v, maxIdle, func() map[int]int { return map[int]int{} }, true) })
			t.Run("interface", func(t *testing.T) { doublePut(t, v, maxIdle, func() any { return new(int) }, true) })
			// Equal numbers, and pointers to nothing, may be different items.
			t.Run("number", func(t *testing.T) { doublePut(t, v, maxIdle, func() int { return 1 }, false) })
			t.Run("nothing", func(t *testing.T) { doublePut(t, v, maxIdle, func() *struct{} { return new(struct{}) }, false) })
			t.Run("nil", func(t *testing.T) { doublePut(t, v, maxIdle, func() *int { return nil }, false) })
		}
	})
}

func doublePut[T any](t *testing.T, v pool.Variant, maxIdle int, make func() T, found bool) {
	p := newPool(t, v, pool.Config[T]{New: func() (T, error) { return make(), nil }, MaxIdle: maxIdle})
	x := get(t, p)
	for range 3 { // again and again is fine
		p.Put(x)
		x = get(t, p)
	}
	p.Put(x)
	if got := panics(func() { p.Put(x) }); got != found {
		t.Errorf("a second Put panics: %v", got)
	}
	p.Trim(0)
	if found {
		p.Put(x) // the pool has forgotten it
	}
}
