package metrics

import (
	"context"
	"net/http"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/verdict"
)

// full returns a sample in which every family has series, of small whole numbers and times that have the
// same text in each format.
func full() *Sample {
	var t tally.Tally
	t.Connected(0, 2*time.Second)
	t.Connected(1, 4*time.Second)
	for why := range tally.Closes {
		t.Ended(0, time.Second, why)
	}
	counts := t.Read()
	at := time.Unix(1000, 0)
	bytes := admin.Bytes{ClientToEndpoint: admin.ByEngine{Spliced: 1, Copied: 2}, EndpointToClient: admin.ByEngine{Spliced: 3, Copied: 4}}
	certificates := []admin.Certificate{{Path: `/a"b\c` + "\n", Ends: at}, {Path: `/a"b\c` + "\n", Ends: at}, {Path: "/\xff", Ends: at}, {Path: "/\xfe", Ends: at}}
	handshakes := &admin.Handshakes{Completed: 5, Resumed: 2, Failed: map[string]int64{"timeout": 1}}
	queues := []admin.Queue{
		{Address: "127.0.0.1:80", Known: true, Length: 1, Most: 2, Dropped: 3, DroppedKnown: true},
		{Address: "unix:/run/x", Known: false},
	}
	return &Sample{
		Process: Process{
			Status: admin.Status{
				Version: "v1", Counters: map[string]int64{"transitions": 1, "hellos_missing": 2}, Summary: admin.Summary{Connections: admin.Connections{Most: 9}, Lane: &admin.Lane{State: admin.LaneOn, Active: 1, Left: 2, Wanted: true, Adopted: 5, Ended: 6, Reset: 2, Returned: 1, Gaps: 4, Stays: map[string]int64{"mirror": 3}, Unrestored: map[string]int64{"address is taken": 1}}, Fallbacks: map[string]int64{"size": 1}, SessionLog: &admin.SessionLog{Lines: 7, Dropped: map[string]int64{"ring": 2}, Filtered: 3}},
				Traces: &admin.Traces{Sampled: 6, Queued: 1, Exported: 3, Unconfirmed: 1, Dropped: map[string]int64{"refused": 1}},
			},
			EveryRefusal: map[string]int64{"targets": 0, "tls": 1},
		},
		Config: Config{Generation: 2, File: FileDiffers, LastOK: true, LastSuccess: at},
		Loops:  []Loop{{Turns: []int64{0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3}, Late: []int64{1}, Measured: true}},
		Listeners: []Listener{{
			Refused: []tally.Count{{Of: "address", N: 1}, {Of: "other", N: 0}}, Tally: counts, Seconds: [verdict.Kinds]float64{verdict.Client: 1.25},
			KeyedBy: "sni", Keyed: []Keyed{{Value: "a.test", Sessions: 3, Bytes: bytes}, {Value: "other", Sessions: 1}},
			Listener: admin.Listener{
				Name: "web", State: admin.Paused, Connections: admin.Connections{Accepted: 9, Active: 1, Most: 5}, Bytes: bytes,
				Pauses: map[string]int64{"process per_second": 2}, Queues: queues, Certificates: certificates, Handshakes: handshakes,
				Rewrites: &admin.Rewrites{Sessions: 3, OffLoop: 1, Bytes: 1000, Masked: map[string]int64{"card": 2, "email": 0}, Late: 4, Encrypted: 2, Unframed: 1, Calls: 7, TimeUs: 2500000, Reset: map[string]int64{"trap": 1, "timeout": 0}, Passed: map[string]int64{"trap": 0, "timeout": 2}, Modules: []admin.RewriteModule{{File: "a.wasm"}}},
				Mirrors: &admin.Mirrors{Running: 2, Ended: map[string]int64{"late": 1, "complete": 0}, Teed: 4, Copied: 3, Undelivered: 2, Answered: 1, Comparisons: []admin.Comparison{
					{Stopped: map[string]int64{"full": 1}, ComparedAnswers: admin.ComparedAnswers{Equal: 5, Different: 1, Masked: 2, Unsettled: 3, Lag: admin.ShadowLag{Slower: 4, Faster: 2}}},
					{Stopped: map[string]int64{"full": 2, "budget": 1}, ComparedAnswers: admin.ComparedAnswers{Equal: 1, Lag: admin.ShadowLag{Alike: 1}}},
				}},
				Filters: []admin.Filter{{
					Name: "names", Calls: 4, TimeUs: 40, Answers: map[string]int64{"allow": 2, "deny": 1}, Failures: map[string]int64{"trap": 1}, Waiting: 1,
					Times: []int64{0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
				}},
				Protocols: map[string]int64{"ssh": 3, "other": 1},
				Cancels:   &admin.Cancels{Requests: 2, Sent: 3, Failed: 1},
			},
		}},
		Upstreams: []Upstream{{
			Tally: counts, Refused: []tally.Count{{Of: "full", N: 1}}, States: map[admin.State]int64{admin.Up: 2},
			Upstream: admin.Upstream{
				Name: "shop", Breaker: "half-open", Opened: 1, Most: 4, MostConnecting: 2, Connections: 3, Connecting: 1, Bytes: bytes,
				LocalFaults: map[string]int64{"too many open files": 1},
				Discovery:   &admin.Discovery{Kind: "dns", Confirmed: at, Failures: 1, Stale: true}, Certificates: certificates, Handshakes: handshakes,
			},
		}},
		Endpoints: []Endpoint{
			{Upstream: "shop", Endpoint: admin.Endpoint{Name: "a", State: admin.Up, Max: 3, Weight: 1, Opened: 1, Bytes: bytes}, Tally: counts, AnswerTimes: []int64{10: 2, 23: 1}, Answered: 9 * time.Second},
			{Upstream: "shop", Endpoint: admin.Endpoint{Name: "b", State: admin.Down, Weight: 1}, Tally: counts},
		},
	}
}

func contextOf(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithCancel(r.Context())
}
