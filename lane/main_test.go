package lane_test

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/netns"
)

func TestMain(m *testing.M) {
	victim()
	stepper()
	netns.Main()
	leak.Main(m)
}
