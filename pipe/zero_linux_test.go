package pipe_test

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/zero"
	"github.com/penstock/penstock/pipe"
)

// TestZeroValues: methods of zero values return.
func TestZeroValues(t *testing.T) {
	zero.Methods(t, map[string]string{}, new(pipe.Pipe), new(pipe.Pool), new(pipe.Config))
}
