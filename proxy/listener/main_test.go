//go:build linux

package listener_test

import (
	"os"
	"testing"

	"github.com/penstock/penstock/internal/testutil/leak"
)

// child names what this binary is to do instead of testing.
const child = "PENSTOCK_LISTENER_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		starve()
		return
	}
	leak.Main(m)
}
