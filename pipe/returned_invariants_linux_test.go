//go:build invariants

package pipe_test

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/place"
	"github.com/penstock/penstock/pipe"
)

// TestPutTwice: the panic of a second Put names the places of both, whether the first one kept the
// pipe or closed it. After another Get the pipe may be put again.
func TestPutTwice(t *testing.T) {
	pl := newPool(t, nil)
	for name, make := range map[string]func() *pipe.Pipe{
		"kept":  func() *pipe.Pipe { return get(t, pl, 0) },
		"dirty": func() *pipe.Pipe { p := get(t, pl, 0); pipe.Load(p, []byte("x")); return p },
		"open":  func() *pipe.Pipe { return open(t, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				p := make()
				first := place.Next()
				pl.Put(p)
				var second string
				got := place.Panic(func() {
					second = place.Next()
					pl.Put(p)
				})
				place.Named(t, got, "\tput at "+first+" (", "\tput again at "+second+" (")
			}
		})
	}
}

// TestPutElsewhere: so does the panic of a pool that has not lent the pipe, which stays its caller's.
func TestPutElsewhere(t *testing.T) {
	pl, other := newPool(t, nil), newPool(t, nil)
	p := get(t, pl, 0)
	var at string
	got := place.Panic(func() {
		at = place.Next()
		other.Put(p)
	})
	place.Named(t, got, "was not taken from", "\tput at "+at+" (")
	pl.Put(p)
}
