package load_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/load"
)

// TestHelloIsHeld: requests count until the time is over, and the connections stay until they are released.
func TestHelloIsHeld(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "Hello, World!") }))
	defer server.Close()
	runner := load.NewRunner()
	var stages []string
	runner.Warm = func() { stages = append(stages, "warm") }
	runner.Over = func() { stages = append(stages, "over") }
	runner.Hold = func() { stages = append(stages, "held"); runner.Release() }
	const warmup, window = 50 * time.Millisecond, 200 * time.Millisecond
	r, err := runner.Run(t.Context(), load.Plan{
		Workload: load.Hello, Address: server.Listener.Addr().String(), Connections: 20,
		Warmup: warmup, Duration: warmup + window, Hold: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(stages, " "); got != "warm over held" || r.Connections != 20 || r.Requests == 0 || r.Elapsed <= 0 || r.P99 <= 0 {
		t.Errorf("%s: %+v", got, r)
	}
}

// TestHelloIsChecked: an answer of other bytes is the end of the plan.
func TestHelloIsChecked(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	plan := load.Plan{Workload: load.Hello, Address: server.Listener.Addr().String(), Connections: 1, Duration: time.Second}
	if _, err := load.NewRunner().Run(t.Context(), plan); err == nil || !strings.Contains(err.Error(), "Hello, World!") {
		t.Error(err)
	}
	if _, err := load.NewRunner().Run(t.Context(), load.Plan{Workload: load.Bulk, Connections: 1, Duration: 1, Hold: true}); err == nil {
		t.Error("bulk is held")
	}
}
