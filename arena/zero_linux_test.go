package arena_test

import (
	"testing"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/testutil/zero"
)

// TestZeroValues: methods of zero values return.
func TestZeroValues(t *testing.T) {
	zero.Methods(t, map[string]string{
		"Arena.Local": "there is no Local", "Ring.Peek": "there is no slot", "Ring.Space": "there is no slot",
		"Ring.Read": "there is no slot", "Ring.Write": "there is no slot",
	}, new(arena.Arena), new(arena.Local), new(arena.Ring), new(arena.Handle), new(arena.Pages), new(arena.Purpose))
}
