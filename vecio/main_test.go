package vecio_test

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// raceEnabled: the race detector makes sync.Pool drop items at random.
var raceEnabled bool
