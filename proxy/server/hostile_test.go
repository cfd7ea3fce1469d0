package server_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// TestAnotherSource: an upstream whose endpoints are to be found elsewhere from now on keeps
// those that it has until they are, and who has looked for them before does so no more.
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
	r.Reload(of(`discover: {file: {path: b.yaml}}`)) // which is not there yet
	for range 3 {
		if got := whose(t, at); got != "a" {
			t.Errorf("%s, while the new source has found nothing", got)
		}
	}
	r.Write("b.yaml", fmt.Sprintf("[%q]", b))
	r.Until("the new source has answered", func() bool { return whose(t, at) == "b" })
	r.Reload(of(fmt.Sprintf(`endpoints: [%q]`, a)))
	if got := whose(t, at); got != "a" {
		t.Errorf("%s, where the file says a", got)
	}
	r.Reload(of(`discover: {file: {path: b.yaml}}`))
	r.Until("the source has answered", func() bool { return whose(t, at) == "b" })
	before := runtime.NumGoroutine()
	for range 10 {
		r.Reload(of(`discover: {file: {path: a.yaml}}`))
		r.Reload(of(`discover: {file: {path: b.yaml}}`))
	}
	r.Until("those who have looked before have ended", func() bool { return runtime.NumGoroutine() <= before+3 })
	echoes(t, stays, "still here")
}

// TestThereAndBack: an address that a reload gives up can be had again by the next one, be it
// at once.
func TestThereAndBack(t *testing.T) {
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
		t.Errorf("%d of 50 times the address could not be had again", failed)
	}
}

// TestRefusedAtTheEnd: who came before its listener went is still counted when it is refused.
func TestRefusedAtTheEnd(t *testing.T) {
	a := named(t, "a")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", routes: [{match: {sni: [a.test]}, upstream: u}]}]
upstreams: [{name: u, endpoints: [%q]}]`, a))
	c := client(t, r.At("l"))
	r.Until("it was accepted", func() bool { return r.Summary().Connections.Active == 1 })
	if err := r.DrainListener("l"); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "GET / HTTP/1.1\r\n\r\n")
	gone(t, c)
	r.Until("it is counted", func() bool { return r.Refused("l", "hello") == 1 })
}
