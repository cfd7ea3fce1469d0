package server_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/state"
)

// TestDenyByHand: a denial applies to new clients and to those that wait for room, for their first bytes and for their
// header, by their PROXY headers if they have one. Their next step notices it, and they are counted by the reason. It survives a
// reload. Sessions go on, and other sources are served.
func TestDenyByHand(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	text := fmt.Sprintf(`
listeners:
  - {name: room, bind: "127.0.0.1:0", upstream: u}
  - {name: data, bind: "127.0.0.1:0", upstream: v, connect: on_data}
  - {name: header, bind: "127.0.0.1:0", upstream: v, accept_proxy: {from: [127.0.0.0/8]}}
  - {name: tls, bind: "127.0.0.1:0", upstream: v, tls: {certificates: [{cert: c.pem, key: k.pem}]}}
upstreams:
  - {name: u, endpoints: [{address: %q, connections: 1}], queue: {timeout: 1m}}
  - {name: v, endpoints: [%[1]q]}`, a)
	cert, key := certificate.New(t, "front.test")
	r := start(t, text, "c.pem", cert, "k.pem", key)
	dial := func(listener, ip string) net.Conn { return dialFrom(t, ip, r.At(listener)) }
	session := dial("room", "127.0.0.9")
	line(t, session)
	waits, other := dial("room", "127.0.0.9"), dial("room", "127.0.0.8")
	data, proxied, honest := dial("data", "127.0.0.9"), dial("header", "127.0.0.8"), dial("header", "127.0.0.8")
	shakes := dial("tls", "127.0.0.9")
	r.Until("all clients are accepted", func() bool { return r.Status().Connections.Active == 7 })
	must(t, second(r.Deny("127.0.0.9", "", time.Hour, "uid=7")))
	echoes(t, session, "still here")
	_, _ = io.WriteString(data, "x")
	_, _ = io.WriteString(proxied, "PROXY TCP4 127.0.0.9 127.0.0.1 1 1\r\n")
	_, _ = io.WriteString(honest, "PROXY TCP4 127.0.0.7 127.0.0.1 1 1\r\n")
	line(t, honest)
	_ = tls.Client(shakes, &tls.Config{InsecureSkipVerify: true}).Handshake()
	r.Until("the refusal is counted", func() bool { return r.Refused("tls", "denied") == 1 })
	session.Close() // this makes room
	for name, c := range map[string]net.Conn{"room": waits, "data": data, "header": proxied} {
		isReset(t, c)
		r.Until("the refusal is counted", func() bool { return r.Refused(name, "denied") == 1 })
	}
	line(t, other)
	r.Reload(text + "\n")
	for range 2 {
		if c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}).Dial("tcp", r.At("data")); err == nil { // else it was reset at once
			_ = c.SetDeadline(time.Now().Add(condition.Patience))
			isReset(t, c)
			c.Close()
		}
	}
	r.Until("they are counted", func() bool { return r.Refused("data", "denied") == 3 })
	if by := r.Summary().RefusedBy; len(by) != 1 || by["denied"] != 6 {
		t.Errorf("the summary has %v", by)
	}
	must(t, r.Undeny("127.0.0.9", "", "uid=7"))
	again := dial("data", "127.0.0.9")
	_, _ = io.WriteString(again, "x")
	line(t, again)
}

// TestDenialsEnd: a denial ends with its time by the machine's clock, which may have been set, and is kept in a plain form.
func TestDenialsEnd(t *testing.T) {
	t.Parallel()

	r := steered(t)
	now := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	var passed atomic.Int64
	r.SetWall(func() time.Time { return now.Add(time.Duration(passed.Load())) })
	must(t, second(r.Deny("127.0.0.0/8", "web", time.Hour, "uid=7")))
	refused(t, r.At("web"))
	whose(t, r.At("api"))
	must(t, second(r.Deny("10.0.0.7", "", 2*time.Hour, "uid=8")))
	kept := r.Denied()
	if len(kept) != 2 || kept[0] != (admin.Denial{Source: "127.0.0.0/8", Listener: "web", Until: now.Add(time.Hour), Since: now, By: "uid=7"}) {
		t.Errorf("%+v", kept)
	}
	passed.Store(int64(time.Hour))
	r.Until("the denial is over", func() bool {
		c, err := net.Dial("tcp", r.At("web"))
		if err != nil {
			return false
		}
		defer c.Close()
		_, err = sockets.ReadLine(c)
		return err == nil
	})
	if got := r.Denied(); len(got) != 1 || got[0].Source != "10.0.0.7" {
		t.Errorf("%+v", got)
	}
}

// TestDenialsWithoutAListener: plan, reload and the lists say that a denial has no effect while its listener is not there.
func TestDenialsWithoutAListener(t *testing.T) {
	t.Parallel()

	text := fmt.Sprintf(`
listeners: [{name: %%s, bind: "127.0.0.1:0", upstream: u}, {name: api, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, named(t, "a"))
	r := start(t, fmt.Sprintf(text, "web"))
	must(t, second(r.Deny("127.0.0.8", "web", time.Hour, "uid=7")))
	must(t, second(r.Deny("127.0.0.0/8", "web", time.Hour, "uid=8")))
	must(t, second(r.Deny("127.0.0.9", "api", time.Hour, "uid=7")))
	lost := func(list []admin.LiveChange) bool {
		return len(list) == 1 && list[0].What == "127.0.0.0/8 and 1 more denied at listener web" && list[0].By == "uid=8" && list[0].Ends == "the configuration no longer has the listener"
	}
	waiting := func(want int) {
		t.Helper()
		n := 0
		for _, d := range append(r.Denied(), r.Status().DeniedByHand.Latest...) {
			if (d.Waits != "") != (want > 0 && d.Listener == "web") {
				t.Errorf("%+v", d)
			}
			n++
		}
		if n != 6 {
			t.Errorf("%d are listed", n)
		}
	}
	if list := r.LiveUnder(r.Load(fmt.Sprintf(text, "front"))); !lost(list) {
		t.Errorf("plan: %+v", list)
	}
	waiting(0)
	for _, name := range []string{"front", "other", "web", "front"} {
		r.Reload(fmt.Sprintf(text, name))
		ended, _ := r.AppliedLive()
		if name == "front" && !lost(ended) || name != "front" && len(ended) != 0 {
			t.Errorf("reload to %s: %+v", name, ended)
		}
		if name == "web" {
			waiting(0)
			refused(t, r.At("web"))
		} else {
			waiting(2)
		}
	}
}

// TestDenialsOverARestart: a denial survives a restart, with its end and its author. One that cannot be read is logged.
func TestDenialsOverARestart(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "state")
	text := fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, named(t, "a"))
	r := startAt(t, path, text)
	d, err := r.Deny("127.0.0.0/8", "l", time.Hour, "uid=7")
	if d.Unkept != "" {
		t.Errorf("it is not kept: %s", d.Unkept)
	}
	if err == nil {
		_, err = r.Deny("10.0.0.7", "", time.Hour, "uid=8")
	}
	if err == nil {
		err = r.Undeny("10.0.0.7", "", "uid=8")
	}
	must(t, err)
	r.store.SetDenials(append(r.store.Denials(), state.Denial{Source: "gone", Until: d.Until}))
	r = r.restart(t, path, text)
	refused(t, r.At("l"))
	if got := r.Denied(); len(got) != 1 || !got[0].Until.Equal(d.Until) || got[0].By != "uid=7" || got[0].Source != d.Source {
		t.Errorf("%+v", got)
	}
	r.Logs("level=INFO", "denied by hand before the restart are denied again", "source="+d.Source, "others=0")
	r.Logs("level=ERROR", "a source that was denied by hand before the restart could not be denied again", "source=gone")
}

// TestDenialOfEveryone: a network of every address is refused, also one with bits beyond its length, for which a file would
// get the advice to write that network.
func TestDenialOfEveryone(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf("listeners: [{name: l, bind: \"127.0.0.1:0\", upstream: u}]\nupstreams: [{name: u, endpoints: [%q]}]", named(t, "a")))
	for _, text := range []string{"0.0.0.0/0", "10.1.1.1/0", "::/0"} {
		if _, err := r.Deny(text, "", time.Hour, "uid=7"); err == nil || !strings.Contains(err.Error(), "write all to deny every client") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestDenialsOfUnixClients: they are denied by user. Mistakes deny no client.
func TestDenialsOfUnixClients(t *testing.T) {
	t.Parallel()

	path := socketPath(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "unix:%s", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, path, named(t, "a")))
	for name, err := range map[string]error{
		"all of IPv6":          second(r.Deny("::/0", "l", time.Hour, "")),
		"a listener":           second(r.Deny("10.0.0.7", "other", time.Hour, "")),
		"one without a number": r.Undeny("unix:uid=x", "", ""),
	} {
		if !errors.Is(err, admin.ErrInvalid) && !errors.Is(err, admin.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list := r.Denied(); len(list) != 0 {
		t.Errorf("denied: %+v", list)
	}
	dialUnix(t, path).Close()
	if d, err := r.Deny("unix", "", time.Hour, "uid=7"); err != nil || d.Unkept != "no state_file" {
		t.Fatal(d, err)
	}
	r.Until("the client is denied", func() bool { dialUnix(t, path).Close(); return r.Refused("l", "denied") > 0 })
	if err := r.Undeny("unix", "l", ""); err == nil || err.Error() != "source unix is denied at all listeners, not only at listener l: leave the listener out" {
		t.Errorf("the one of all: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// denies returns the denials at a listener.
func (r *rig) denies(listener string) *admin.ListenerDenials {
	return r.Listener(listener).DeniedByHand
}

// TestDenialsInStatus: the status has the denials, and those of a listener's clients that they refuse, from the latest
// denial on.
func TestDenialsInStatus(t *testing.T) {
	t.Parallel()

	r := steered(t)
	if st := r.Status(); st.DeniedByHand != nil || r.denies("web") != nil {
		t.Errorf("at first: %+v", st.DeniedByHand)
	}
	for range 20 { // which were served before
		whose(t, r.At("web"))
	}
	deny := func(source, listener string) {
		t.Helper()
		must(t, second(r.Deny(source, listener, time.Hour, "uid=7")))
	}
	deny("10.0.0.0/8", "")
	deny("127.0.0.0/24", "web")
	whose(t, r.At("api"))
	const denied = 25
	for range denied {
		if c, err := net.Dial("tcp", r.At("web")); err == nil {
			isReset(t, c)
			c.Close()
		}
	}
	r.Until("the clients are refused", func() bool { return r.Refused("web", "denied") == denied })
	if d := r.denies("web"); d.Clients != denied || d.Refused != denied || d.Count != 2 || d.All || d.Latest.Source != "127.0.0.0/24" {
		t.Errorf("%+v", d)
	}
	r.Server.AgeDenials() // from then on the last minute counts
	r.Until("those before are counted, too", func() bool { d := r.denies("web"); return d.Clients == denied+20 && d.Refused == denied })
	r.Until("the other's client is counted", func() bool { return r.denies("api").Clients == 1 })
	if d := r.denies("api"); d.Count != 1 || d.Refused != 0 || d.Latest.Source != "10.0.0.0/8" {
		t.Errorf("%+v", d)
	}
	deny("10.0.0.0/8", "") // again
	deny("all", "api")
	if d := r.denies("api"); d.Count != 2 || !d.All || d.Latest.Source != "all" || d.Clients != 0 {
		t.Errorf("%+v", d)
	}
	deny("10.0.0.9", "api")
	if d := r.denies("api"); d.Count != 3 || !d.All || d.Latest.Source != "all" {
		t.Errorf("after another denial: %+v", d)
	}
	deny("all", "")
	deny("10.0.0.9", "api") // again
	if d := r.denies("api"); d.Latest.Source != "all" || d.Latest.Listener != "" {
		t.Errorf("with all at every listener: %+v", d)
	}
	must(t, r.Undeny("all", "", "uid=7"))
	must(t, r.Undeny("10.0.0.9", "api", "uid=7"))
	for i := range 9 {
		deny(fmt.Sprintf("10.0.0.%d", i), "web")
	}
	all := r.Status().DeniedByHand
	sources := make([]string, 0, len(all.Latest))
	for _, d := range all.Latest {
		sources = append(sources, d.Source)
	}
	if want := []string{"10.0.0.8", "10.0.0.7", "10.0.0.6", "10.0.0.5", "10.0.0.4", "10.0.0.3", "10.0.0.2", "10.0.0.1", "10.0.0.0", "all"}; all.Count != 12 || !slices.Equal(sources, want) {
		t.Errorf("%d, %v", all.Count, sources)
	}
	must(t, r.Undeny("127.0.0.0/24", "web", "uid=7"))
	whose(t, r.At("web"))
}
