package pipe_test

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// ordinaryUser is the user id for tests that need a pipe quota of their own.
const ordinaryUser = 64321
