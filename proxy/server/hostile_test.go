package server_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// TestAnotherSource: a reload changes the source of an upstream's endpoints. The discovery of the old source ends.
func TestAnotherSource(t *testing.T) {
	a, b := named(t, "a"), named(t, "b")
	of := func(discover string) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, %s, health_check: off}]`, discover)
	}
	r := start(t, of(`discover: {file: {path: a.yaml}}`), "a.yaml", fmt.Sprintf("[%q]", a))
	at := r.At("l")
	if got := whose(t, at); got != "a" {
		t.Fatal(got)
	}
	stays := client(t, at)
	line(t, stays)
	r.Write("b.yaml", fmt.Sprintf("[%q]", b))
	r.Reload(of(`discover: {file: {path: b.yaml}}`))
	if got := whose(t, at); got != "b" {
		t.Errorf("%s, where the new source has b", got)
	}
	r.Reload(of(fmt.Sprintf(`endpoints: [%q]`, a)))
	if got := whose(t, at); got != "a" {
		t.Errorf("%s, where the configuration has a", got)
	}
	r.Reload(of(`discover: {file: {path: b.yaml}}`))
	before := runtime.NumGoroutine()
	for range 10 {
		r.Reload(of(`discover: {file: {path: a.yaml}}`))
		r.Reload(of(`discover: {file: {path: b.yaml}}`))
	}
	r.Until("the former discoveries have ended", func() bool { return runtime.NumGoroutine() <= before+3 })
	echoes(t, stays, "still here")
}

// TestThereAndBack: the next reload can have an address again that the one before gave up, even
// at once.
func TestThereAndBack(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, a))
	at := r.At("l")
	with := fmt.Sprintf(`
listeners: [{name: l, bind: %q, upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, at, a)
	without := fmt.Sprintf(`
listeners: [{name: m, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, a)
	r.Reload(without)
	failed := 0
	for range 50 {
		if err := r.Apply(t.Context(), r.Load(with)); err != nil {
			failed++
			time.Sleep(time.Millisecond)
			continue
		}
		if got := whose(t, at); got != "a" {
			t.Error(got)
		}
		r.Reload(without)
	}
	if failed > 0 {
		t.Errorf("%d of 50 times the address was not available again", failed)
	}
}

// TestRefusedAtTheEnd: a client accepted before its listener was drained is still counted when it
// is refused.
func TestRefusedAtTheEnd(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", routes: [{match: {sni: [a.test]}, upstream: u}]}]
upstreams: [{name: u, endpoints: [%q]}]`, a))
	c := client(t, r.At("l"))
	r.Until("the client was accepted", func() bool { return r.Summary().Connections.Active == 1 })
	if err := r.DrainListener("l", "test"); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "GET / HTTP/1.1\r\n\r\n")
	gone(t, c)
	r.Until("the refusal is counted", func() bool { return r.Refused("l", "no_route") == 1 })
}
