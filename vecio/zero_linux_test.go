package vecio_test

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/zero"
	"github.com/penstock/penstock/vecio"
)

// TestZeroValues: methods of zero values return.
func TestZeroValues(t *testing.T) {
	zero.Methods(t, map[string]string{}, new(vecio.Writer), new(vecio.Policy), new(vecio.Path), new(vecio.ReleaseFunc))
}
