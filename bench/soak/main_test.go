package soak

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/child"
)

// childName is the first argument of a test binary that runs as a proxy.
const childName = "penstock-soak-test"

func TestMain(m *testing.M) { child.Main(m, childName, serve) }
