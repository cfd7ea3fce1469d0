package relay

import (
	"math/bits"
	"testing"
	"unsafe"
)

// TestDrivenSize: an idle session on a loop is its Driven and two slots of the loop's
// table.
func TestDrivenSize(t *testing.T) {
	t.Parallel()

	if bits.UintSize != 64 {
		t.Skip("the bound is for 64 bits")
	}
	if n := unsafe.Sizeof(Driven{}); n > 280 {
		t.Errorf("a Driven takes %d bytes, more than 280", n)
	}
}
