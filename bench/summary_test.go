package bench_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/proxy/admin"
)

func TestSinceSubtractsCountersAndKeepsStates(t *testing.T) {
	before := &admin.Summary{
		Connections: admin.Connections{Accepted: 10, Active: 3, Refused: 1},
		Bytes: admin.Bytes{
			ClientToEndpoint: admin.ByEngine{Spliced: 1, Copied: 2},
			EndpointToClient: admin.ByEngine{Spliced: 100, Copied: 200},
		},
		Lost:      5,
		Fallbacks: map[string]int64{"urgent": 2, "budget": 7},
		Pipes:     admin.Pipes{Made: 4, Reused: 40, Leased: 2, Idle: 2},
	}
	after := &admin.Summary{
		Connections: admin.Connections{Accepted: 15, Active: 1, Refused: 2},
		Bytes: admin.Bytes{
			ClientToEndpoint: admin.ByEngine{Spliced: 4, Copied: 6},
			EndpointToClient: admin.ByEngine{Spliced: 1100, Copied: 2200},
		},
		Lost:      5,
		Fallbacks: map[string]int64{"urgent": 3, "budget": 7, "refused": 1},
		Pipes:     admin.Pipes{Made: 5, Reused: 60, Leased: 1, Idle: 4},
	}
	want := &admin.Summary{
		Connections: admin.Connections{Accepted: 5, Active: 1, Refused: 1},
		Bytes: admin.Bytes{
			ClientToEndpoint: admin.ByEngine{Spliced: 3, Copied: 4},
			EndpointToClient: admin.ByEngine{Spliced: 1000, Copied: 2000},
		},
		Fallbacks: map[string]int64{"urgent": 1, "refused": 1},
		Pipes:     admin.Pipes{Made: 1, Reused: 20, Leased: 1, Idle: 4},
	}
	got := bench.Since(before, after)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if after.Fallbacks["urgent"] != 3 {
		t.Error("the newer summary was changed")
	}
}
