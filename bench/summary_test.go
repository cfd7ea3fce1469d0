package bench_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/proxy"
)

func TestSinceSubtractsCountersAndKeepsStates(t *testing.T) {
	before := &proxy.Summary{
		Connections: proxy.Connections{Accepted: 10, Active: 3, Refused: 1},
		Bytes: proxy.Bytes{
			ClientToEndpoint: proxy.Moved{Spliced: 1, Copied: 2},
			EndpointToClient: proxy.Moved{Spliced: 100, Copied: 200},
		},
		Lost:      5,
		Fallbacks: map[string]int64{"urgent": 2, "budget": 7},
		Pipes:     proxy.Pipes{Made: 4, Reused: 40, Leased: 2, Idle: 2},
	}
	after := &proxy.Summary{
		Connections: proxy.Connections{Accepted: 15, Active: 1, Refused: 2},
		Bytes: proxy.Bytes{
			ClientToEndpoint: proxy.Moved{Spliced: 4, Copied: 6},
			EndpointToClient: proxy.Moved{Spliced: 1100, Copied: 2200},
		},
		Lost:      5,
		Fallbacks: map[string]int64{"urgent": 3, "budget": 7, "refused": 1},
		Pipes:     proxy.Pipes{Made: 5, Reused: 60, Leased: 1, Idle: 4},
	}
	want := &proxy.Summary{
		Connections: proxy.Connections{Accepted: 5, Active: 1, Refused: 1},
		Bytes: proxy.Bytes{
			ClientToEndpoint: proxy.Moved{Spliced: 3, Copied: 4},
			EndpointToClient: proxy.Moved{Spliced: 1000, Copied: 2000},
		},
		Fallbacks: map[string]int64{"urgent": 1, "refused": 1},
		Pipes:     proxy.Pipes{Made: 1, Reused: 20, Leased: 1, Idle: 4},
	}
	got := bench.Since(before, after)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if both := bench.Both(got); both != (proxy.Moved{Spliced: 1003, Copied: 2004}) {
		t.Errorf("both directions: %+v", both)
	}
	if after.Fallbacks["urgent"] != 3 {
		t.Error("the newer summary was changed")
	}
}
