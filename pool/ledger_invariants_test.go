//go:build invariants

package pool_test

import (
	"context"
	"testing"

	"github.com/penstock/penstock/internal/testutil/place"
	"github.com/penstock/penstock/pool"
)

// TestDoublePutPlaces: the panic of a second Put, or of a Discard after Put, names the place of each.
// Config.Reset does not get an item that is idle.
func TestDoublePutPlaces(t *testing.T) {
	for op, again := range map[string]func(*pool.Pool[*int], *int){
		"put":     (*pool.Pool[*int]).Put,
		"discard": (*pool.Pool[*int]).Discard,
	} {
		resets := 0
		p := newPool(t, pool.Variants()[0], pool.Config[*int]{
			New:   func(context.Context) (*int, error) { return new(int), nil },
			Reset: func(*int) bool { resets++; return resets == 1 },
		})
		x := get(t, p)
		first := place.Next()
		p.Put(x)
		var second string
		got := place.Panic(func() {
			second = place.Next()
			again(p, x)
		})
		place.Named(t, got, "\tput at "+first+" (", "\t"+op+" again at "+second+" (")
		if resets != 1 {
			t.Errorf("Reset was called %d times", resets)
		}
	}
}

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
	p := newPool(t, v, pool.Config[T]{New: func(context.Context) (T, error) { return make(), nil }, MaxIdle: maxIdle})
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
