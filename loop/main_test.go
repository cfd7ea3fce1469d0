package loop_test

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/leak"
)

// raceEnabled: with the race detector stacks are deeper.
var raceEnabled bool

func TestMain(m *testing.M) { leak.Main(m) }
