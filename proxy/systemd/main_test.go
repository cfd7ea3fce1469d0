package systemd_test

import (
	"os"
	"testing"

	"github.com/penstock/penstock/internal/testutil/leak"
)

// asService is set in the environment of a child that plays a service.
const asService = "PENSTOCK_TEST_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(asService) != "" {
		service()
		return
	}
	leak.Main(m)
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
