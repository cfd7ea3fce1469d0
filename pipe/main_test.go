package pipe_test

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/pipequota"
)

func TestMain(m *testing.M) {
	pipequota.ShareUntilExit()
	leak.Main(m)
}
