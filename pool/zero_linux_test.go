package pool_test

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/zero"
	"github.com/penstock/penstock/pool"
)

// TestZeroValues: methods of zero values return.
func TestZeroValues(t *testing.T) {
	zero.Methods(t, map[string]string{}, new(pool.Pool[int]), new(pool.Stats))
}
