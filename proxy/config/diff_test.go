package config_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/config"
	clients "github.com/penstock/penstock/proxy/internal/source"
)

const before = `
metrics: {bind: ":9464", allow: [10.0.0.0/8], token: "file:password"}
limits: {connections: 5}
listeners:
  - {name: a, bind: [":1", ":2"], upstream: u}
  - {name: b, bind: ":3", limits: {bandwidth: {both: 1MiB, up: 3MiB}, bandwidth_per_connection: {down: 5MiB}}, routes: [{match: {sni: [x.y]}, upstream: u}, {split: [{upstream: u, percent: 90}, {upstream: v, percent: 10}]}]}
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
  - {name: b, bind: ":3", limits: {bandwidth: {both: 2MiB, down: 4MiB, burst: 1MiB}}, routes: [{match: {sni: [x.y, z]}, upstream: v}, {split: [{upstream: u, percent: 80}, {upstream: v, percent: 20}]}]}
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
		"listener b changed: routes[0].match.sni: [x.y] → [x.y, z], routes[0].upstream: u → v, routes[1].split[0].percent: 90 → 80, routes[1].split[1].percent: 10 → 20, limits.bandwidth.both: 1MiB → 2MiB, limits.bandwidth.up: 3MiB → 0, limits.bandwidth.down: 0 → 4MiB (not for sessions that began without this limit), limits.bandwidth.burst: 0 → 1MiB, limits.bandwidth_per_connection.down: 5MiB → 0 (for new sessions)",
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
		"upstream v changed: health_check.send changed (not shown), circuit_breaker: present → off, queue.size: 1024 → 0, queue.hold: 3s → 0s, fallback: absent → present",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if changes := config.Diff(old, old); len(changes) > 0 {
		t.Errorf("against itself: %v", changes)
	}
}

// TestDiffOfLongLists: a long list is shown from the first difference on.
func TestDiffOfLongLists(t *testing.T) {
	t.Parallel()

	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}
	load := func(names ...string) *config.Config {
		return loadTree(t, config.Tree{"/etc/p.yaml": "listeners: [{name: l, bind: \":1\", routes: [{match: {sni: [" + strings.Join(names, ", ") + "]}, upstream: u}]}]\nupstreams: [{name: u, endpoints: [\"h:1\"]}]"})
	}
	for _, tc := range []struct {
		next []string
		want string
	}{
		{append(slices.Clone(names[:11]), "x"), "[…, l, … 12 in all] → […, x, … 12 in all]"},
		{names[:9], "[…, j, k, l, … 12 in all] → […, … 9 in all]"},
		{append([]string{"x"}, names[1:]...), "[a, b, c, d, e, f, g, h, … 12 in all] → [x, b, c, d, e, f, g, h, … 12 in all]"},
	} {
		if got := fmt.Sprint(config.Diff(load(names...), load(tc.next...))); got != "[listener l changed: routes[0].match.sni: "+tc.want+"]" {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}

func TestDiffOfOrder(t *testing.T) {
	load := func(endpoints string) *config.Config { return load(t, upstream("endpoints: ["+endpoints+"]")) }
	got := fmt.Sprint(config.Diff(load("'h:1', 'h:2', 'h:3'"), load("'h:4', 'h:1', 'h:3', 'h:2'")))
	if want := "[upstream u changed: endpoints: h:2 first → h:3 first endpoint u/h:4 added]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// filled returns a struct in which every pointer points to something and every list has
// something in it, so that each key is there.
func filled[T any]() *T {
	t := new(T)
	fillIn(reflect.ValueOf(t).Elem())
	return t
}

func fillIn(v reflect.Value) {
	switch {
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillIn(v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillIn(v.Index(0))
	case v.Kind() == reflect.Struct && !opaque(v.Type()):
		for i := range v.NumField() {
			fillIn(v.Field(i))
		}
	}
}

func opaque(t reflect.Type) bool {
	return t == reflect.TypeFor[netip.Addr]() || t == reflect.TypeFor[config.Rule]()
}

// alterations calls f with every value of v changed in turn, and changes it back.
func alterations(t *testing.T, path string, v reflect.Value, f func(path string)) {
	was := reflect.New(v.Type()).Elem()
	was.Set(v)
	changed := func(to reflect.Value, what string) {
		v.Set(to)
		f(path + what)
		v.Set(was)
	}
	switch {
	case opaque(v.Type()):
		changed(other(t, v), "")
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			alterations(t, path+"."+v.Type().Field(i).Name, v.Field(i), f)
		}
	case v.Kind() == reflect.Pointer:
		changed(reflect.Zero(v.Type()), " absent")
		alterations(t, path, v.Elem(), f)
	case v.Kind() == reflect.Slice:
		changed(reflect.Zero(v.Type()), " empty")
		changed(reflect.Append(v, reflect.New(v.Type().Elem()).Elem()), " longer")
		alterations(t, path+"[0]", v.Index(0), f)
	case v.Kind() == reflect.Array:
		for i := range v.Len() {
			alterations(t, fmt.Sprintf("%s[%d]", path, i), v.Index(i), f)
		}
	default:
		changed(other(t, v), "")
	}
}

func other(t *testing.T, v reflect.Value) reflect.Value {
	o := reflect.New(v.Type()).Elem()
	switch {
	case v.Type() == reflect.TypeFor[netip.Addr]():
		return reflect.ValueOf(netip.MustParseAddr("192.0.2.1"))
	case v.Type() == reflect.TypeFor[config.Rule]():
		return reflect.ValueOf(clients.Prefix(netip.MustParsePrefix("192.0.2.0/24")))
	case v.CanInt():
		o.SetInt(v.Int() + int64(time.Second))
		if o.OverflowInt(v.Int() + int64(time.Second)) {
			o.SetInt(v.Int() + 1)
		}
	case v.CanUint():
		o.SetUint(v.Uint() + 1)
	case v.CanFloat():
		o.SetFloat(v.Float() + 0.5)
	case v.Kind() == reflect.Bool:
		o.SetBool(!v.Bool())
	case v.Kind() == reflect.String:
		o.SetString(v.String() + "x")
	default:
		t.Fatalf("%v: this test does not know how to change it", v.Type())
	}
	return o
}

// TestSame: configurations with different values of a key are not the same, except for where
// and how these were written.
func TestSame(t *testing.T) {
	sameBy(t, (*config.Listener).Same)
	sameBy(t, func(a, b *config.Upstream) bool { return a.SameButEndpoints(b) && a.SameEndpoints(b) })
	sameBy(t, (*config.HealthCheck).Same)
	sameBy(t, (*config.Discover).Same)
	sameBy(t, (*config.SessionLog).Same)
	sameBy(t, (*config.Traces).Same)
	sameBy(t, (*config.Filter).Same)
}

// written is where and how a value was written.
var written = regexp.MustCompile(`\.Pos\.(File|Line|Column)$|\.(Send|Expect|Standby|Body|Value)\.Source$`)

func sameBy[T any](t *testing.T, same func(a, b *T) bool) {
	t.Helper()
	a, b := filled[T](), filled[T]()
	if !same(a, b) {
		t.Errorf("%T: two that say the same are not the same", a)
	}
	n := 0
	alterations(t, fmt.Sprintf("%T", a), reflect.ValueOf(b).Elem(), func(path string) {
		n++
		if got, want := same(a, b), written.MatchString(path); got != want {
			t.Errorf("%s: same is %v, want %v", path, got, want)
		}
		if got, want := same(b, a), written.MatchString(path); got != want {
			t.Errorf("%s, the other way round: same is %v, want %v", path, got, want)
		}
	})
	if n < 3 {
		t.Errorf("%T: %d values were changed", a, n)
	}
}

// TestSameEndpoints: their order matters.
func TestSameEndpoints(t *testing.T) {
	e, f := config.Endpoint{Name: "e"}, config.Endpoint{Name: "f"}
	a, b := &config.Upstream{Endpoints: []config.Endpoint{e, f}}, &config.Upstream{Endpoints: []config.Endpoint{f, e}}
	if a.SameEndpoints(b) || !a.SameButEndpoints(b) {
		t.Error("another order of endpoints")
	}
}
