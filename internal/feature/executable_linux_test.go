package feature_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

// TestExecutableMemory: where memory that was written may not be made executable the probe says so, for good.
func TestExecutableMemory(t *testing.T) {
	if !privilege.NoNewCode(t) {
		return
	}
	err := feature.ExecutableMemory()
	if !errors.Is(err, syscall.EACCES) || !errors.Is(err, feature.ErrNotSupported) {
		t.Errorf("%v", err)
	}
}
