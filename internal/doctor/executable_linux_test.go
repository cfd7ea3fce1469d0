package doctor

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/privilege"
)

// TestExecutableMemory: where memory may not be made executable the doctor says so, and what that costs.
func TestExecutableMemory(t *testing.T) {
	if !privilege.NoNewCode(t) {
		return
	}
	for _, c := range Examine(Options{}).Checks {
		if c.Name != "executable-memory" {
			continue
		}
		if c.State != Degraded || !strings.Contains(c.Found, "mprotect") || !strings.Contains(c.Cost, "interpreted") || len(c.Mend) == 0 {
			t.Errorf("%+v", c)
		}
		return
	}
	t.Error("there is no such check")
}
