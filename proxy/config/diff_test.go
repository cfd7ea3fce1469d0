package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

const before = `
metrics: {bind: ":9464", allow: [10.0.0.0/8], token: "file:password"}
limits: {connections: 5}
listeners:
  - {name: a, bind: [":1", ":2"], upstream: u}
  - {name: b, bind: ":3", routes: [{match: {sni: [x.y]}, upstream: u}, {split: [{upstream: u, percent: 90}, {upstream: v, percent: 10}]}]}
  - {name: gone, bind: ":4", upstream: v}
upstreams:
  - {name: u, endpoints: ["10.0.0.1:1", {address: "10.0.0.2:1", name: two}, {address: "10.0.0.3:1", name: three}]}
  - {name: v, endpoints: ["10.0.0.1:1"], health_check: {send: "file:password"}}
  - {name: w, endpoints: ["10.0.0.1:1", "10.0.0.2:1"]}
`

func TestDiff(t *testing.T) {
	const after = `
upstreams:
  - {name: new, endpoints: ["10.0.0.9:1"]}
  - {name: u, endpoints: ["10.0.0.1:1", {address: "10.0.0.2:1", name: two, weight: 5, zone: a}, {address: "10.0.0.4:1", name: three}], retry: {backoff: 1ms}}
  - {name: v, endpoints: [{address: "10.0.0.1:1", weight: 1}], health_check: {send: "other", http: {status: [200]}}, circuit_breaker: off, fallback: {upstream: u}}
admin: {bind: "unix:/s"}
metrics: {bind: ":9464", allow: [10.0.0.0/9]}
limits: {connections: 6}
listeners:
  - {name: b, bind: ":3", routes: [{match: {sni: [x.y, z]}, upstream: v}, {split: [{upstream: u, percent: 80}, {upstream: v, percent: 20}]}]}
  - {name: a, bind: [":1", ":22"], upstream: u, timeouts: {idle: 60m, connect: 1s}}
  - {name: c, bind: ":5", upstream: new}
`
	tree := config.Tree{"/etc/p.yaml": before, "/etc/password": "x"}
	old := loadTree(t, tree)
	tree["/etc/p.yaml"] = after
	var got []string
	for _, c := range config.Diff(old, loadTree(t, tree)) {
		got = append(got, c.String())
		if !slices.Contains(config.Kinds(), c.Kind) {
			t.Errorf("%s is not among the kinds", c.Kind)
		}
	}
	want := []string{
		"limits changed: connections: 5 → 6",
		"admin changed: bind: auto → unix:/s",
		"metrics changed: allow: [10.0.0.0/8] → [10.0.0.0/9], token: (secret) → \"\"",
		"listener gone removed",
		"listener b changed: routes[0].match.sni: [x.y] → [x.y, z], routes[0].upstream: u → v, routes[1].split[0].percent: 90 → 80, routes[1].split[1].percent: 10 → 20",
		"listener a changed: bind: [:1, :2] → [:1, :22], timeouts.connect: 5s → 1s",
		"listener c added",
		"upstream w removed",
		"endpoint w/10.0.0.1:1 removed",
		"endpoint w/10.0.0.2:1 removed",
		"upstream new added",
		"endpoint new/10.0.0.9:1 added",
		"upstream u changed: retry.backoff: 25ms → 1ms",
		"endpoint u/three (10.0.0.3:1) removed",
		"endpoint u/two (10.0.0.2:1) changed: weight: 1 → 5, zone: \"\" → a",
		"endpoint u/three (10.0.0.4:1) added",
		"upstream v changed: health_check.send: (secret) → (secret), circuit_breaker: present → off, queue.size: 1024 → 0, fallback: absent → present",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if changes := config.Diff(old, old); len(changes) > 0 {
		t.Errorf("against itself: %v", changes)
	}
}

func TestDiffOfOrder(t *testing.T) {
	load := func(endpoints string) *config.Config { return load(t, upstream("endpoints: ["+endpoints+"]")) }
	got := fmt.Sprint(config.Diff(load("'h:1', 'h:2', 'h:3'"), load("'h:4', 'h:1', 'h:3', 'h:2'")))
	if want := "[upstream u changed: endpoints: h:2 first → h:3 first endpoint u/h:4 added]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
