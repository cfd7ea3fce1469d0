package evring_test

import (
	"testing"

	"github.com/penstock/penstock/evring"
	"github.com/penstock/penstock/internal/testutil/zero"
)

// TestZeroValues: methods of zero values return.
func TestZeroValues(t *testing.T) {
	zero.Methods(t, map[string]string{}, new(evring.Ring))
}
