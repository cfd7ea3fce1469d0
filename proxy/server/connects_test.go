package server_test

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/tally"
)

// TestConnectsAndVerdicts: the status has the connections of an upstream and of its endpoints with the times that
// they took, and the time of ended sessions by verdict.
func TestConnectsAndVerdicts(t *testing.T) {
	t.Parallel()

	for i, bound := range tally.ConnectBounds {
		if admin.ConnectBoundsUs[i] != bound.Microseconds() {
			t.Errorf("bound %d is %d µs in a status, and %v where it is counted", i, admin.ConnectBoundsUs[i], bound)
		}
	}
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: e}], health_check: off}]`, named(t, "up")))
	const clients = 3
	began := time.Now()
	var open []net.Conn
	for range clients {
		open = append(open, client(t, r.At("l")))
		line(t, open[len(open)-1])
	}
	u, e := r.Status().Upstreams[0].Connects, r.Endpoint("u", "e").Connects
	if sum := sumOf(u.Buckets); u.Made != clients || sum != clients || u.SumUs <= 0 || len(u.Buckets) != len(tally.ConnectBounds)+1 {
		t.Errorf("the upstream has made %+v", u)
	}
	if diff := cmp.Diff(admin.Connects{Made: u.Made, SumUs: u.SumUs}, e); diff != "" {
		t.Errorf("its only endpoint: %s", diff)
	}
	r.Until("they have lasted long enough for a verdict", func() bool { return time.Since(began) > 250*time.Millisecond })
	for _, c := range open {
		c.Close()
	}
	r.Until("the sessions have verdicts", func() bool {
		return len(r.Status().Upstreams[0].Limited) > 0 && len(r.Listener("l").Limited) > 0 && len(r.Endpoint("u", "e").Limited) > 0
	})
	if a := r.Endpoint("u", "e").Answers; a == nil || a.Made != clients || a.SumUs <= 0 || a.SumUs > time.Since(began).Microseconds()*clients {
		t.Errorf("it has answered %+v", a)
	}
}

func sumOf(list []int64) (sum int64) {
	for n := range slices.Values(list) {
		sum += n
	}
	return sum
}
