package server_test

import (
	"fmt"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/lb"
)

// from connects a client from another source.
func from(t *testing.T, source byte, address string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, source)}, Timeout: patience}
	c, err := d.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// TestPoliciesOfConfiguration: the names of `balance` in a configuration are those of the policies.
func TestPoliciesOfConfiguration(t *testing.T) {
	t.Parallel()

	field, ok := reflect.TypeFor[config.Upstream]().FieldByName("Balance")
	if !ok {
		t.Fatal("an upstream has no Balance")
	}
	names := strings.Fields(field.Tag.Get("enum"))
	if got, want := strings.Join(names, " "), strings.Trim(fmt.Sprint(lb.Policies()), "[]"); got != want {
		t.Errorf("the enum of balance is %q, want %q", got, want)
	}
}

// TestPolicies: each policy keeps its promise, with sessions that stay.
func TestPolicies(t *testing.T) {
	t.Parallel()

	const clients = 30
	a, b, c := named(t, "a"), named(t, "b"), named(t, "c")
	promises := map[string]func(has map[string]int) bool{
		"round_robin": func(has map[string]int) bool { return has["a"] == 10 && has["b"] == 10 && has["c"] == 10 },
		"least_conn":  func(has map[string]int) bool { return has["a"] == 10 && has["b"] == 10 && has["c"] == 10 },
		"random_two":  func(has map[string]int) bool { return has["a"] > 5 && has["b"] > 5 && has["c"] > 5 },
		"first":       func(has map[string]int) bool { return has["a"] == 20 && has["b"] == 10 },
		"maglev":      func(has map[string]int) bool { return len(has) == 3 },
		"source_ip":   func(has map[string]int) bool { return len(has) == 3 },
	}
	for _, policy := range lb.Policies() {
		t.Run(policy.String(), func(t *testing.T) {
			ok := promises[policy.String()]
			if ok == nil {
				t.Fatal("this test has no promise of the policy")
			}
			r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, balance: %s, endpoints: [{address: %q, connections: 20}, {address: %q, connections: 20}, {address: %q, connections: 20}]}]`, policy, a, b, c))
			has := map[string]int{}
			for i := range clients {
				has[line(t, from(t, byte(i+1), r.At("l")))]++
			}
			if !ok(has) {
				t.Errorf("%v", has)
			}
		})
	}
}

// TestNodesOfAFleet: two load balancers that have the same endpoints in another order send
// a client to the same one.
func TestNodesOfAFleet(t *testing.T) {
	t.Parallel()

	a, b, c := named(t, "a"), named(t, "b"), named(t, "c")
	for _, policy := range lb.Policies() {
		if !policy.Keyed() {
			continue
		}
		text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, balance: %s, endpoints: [%q, %q, %q]}]`
		one, two := start(t, fmt.Sprintf(text, policy, a, b, c)), start(t, fmt.Sprintf(text, policy, c, a, b))
		for i := range byte(20) {
			first := line(t, from(t, i+1, one.At("l")))
			for _, r := range []*rig{one, two} {
				if got := line(t, from(t, i+1, r.At("l"))); got != first {
					t.Errorf("%s: client %d got to %s and %s", policy, i, first, got)
				}
			}
		}
	}
}

// shares returns how many of 40 clients each server gets.
func (r *rig) shares() string {
	r.T.Helper()
	has := map[string]int{}
	for range 40 {
		has[whose(r.T, r.At("l"))]++
	}
	return fmt.Sprint(has) // sorted
}

// TestWeights: clients are shared in proportion to the weights, also when an operator or a reload
// changes them.
func TestWeights(t *testing.T) {
	t.Parallel()

	text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a, weight: %d}, {address: %q, name: b}]}]`
	a, b := named(t, "a"), named(t, "b")
	r := start(t, fmt.Sprintf(text, a, 3, b))
	if got := r.shares(); got != "map[a:30 b:10]" {
		t.Errorf("3 to 1: %s", got)
	}
	if err := r.SetWeight("u", "a", 1, "test"); err != nil {
		t.Fatal(err)
	}
	if got := r.shares(); got != "map[a:20 b:20]" {
		t.Errorf("1 to 1: %s", got)
	}
	r.Reload(fmt.Sprintf(text, a, 0, b))
	if got := r.shares(); got != "map[b:40]" {
		t.Errorf("0 to 1: %s", got)
	}
}

// TestBackup: a backup gets no clients while another endpoint can be used.
func TestBackup(t *testing.T) {
	t.Parallel()

	text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a}, {address: %q, name: b, backup: true}], health_check: off, retry: {backoff: 0}}]`
	a, b := named(t, "a"), named(t, "b")
	r := start(t, fmt.Sprintf(text, a, b))
	if got := r.shares(); got != "map[a:40]" {
		t.Error(got)
	}
	r.Reload(fmt.Sprintf(text, sockets.Refusing(t), b))
	if got := r.shares(); got != "map[b:40]" {
		t.Error(got)
	}
}

// TestZones: the local zone is used first, and others as its usable share falls.
func TestZones(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - name: u
    zone_aware: {local: x, spill_below: 1.0}
    endpoints: [{address: %q, name: a, zone: x}, {address: %q, name: bad, zone: x}, {address: %q, name: c, zone: y}]
    health_check: off
    circuit_breaker: off
    retry: {backoff: 0}
    outlier_detection: {consecutive_failures: 5}`, named(t, "a"), sockets.Refusing(t), named(t, "c")))
	for range 8 {
		if got := whose(t, r.At("l")); got != "a" && r.Endpoint("u", "bad").State == "up" {
			t.Errorf("%s, while the zone is whole", got)
		}
	}
	for r.Endpoint("u", "bad").State != "ejected" {
		whose(t, r.At("l"))
	}
	if got := r.shares(); !strings.Contains(got, "a:") || !strings.Contains(got, "c:") {
		t.Errorf("half of the zone is left: %s", got)
	}
}

// TestSlowStart: an endpoint that a reload adds gets few clients at first.
func TestSlowStart(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%s], slow_start: %s}]`
	one, both := fmt.Sprintf("%q", a), fmt.Sprintf("%q, %q", a, b)
	r := start(t, fmt.Sprintf(text, one, "1h"))
	r.Reload(fmt.Sprintf(text, both, "1h"))
	var ofA, ofB int
	if got := r.shares(); got != "map[a:40]" {
		if _, err := fmt.Sscanf(got, "map[a:%d b:%d]", &ofA, &ofB); err != nil || ofB > 8 {
			t.Errorf("of a new endpoint: %s", got)
		}
	}
	r = start(t, fmt.Sprintf(text, one, "0s"))
	r.Reload(fmt.Sprintf(text, both, "0s"))
	if got := r.shares(); got != "map[a:20 b:20]" {
		t.Errorf("without a slow start: %s", got)
	}
}
