package server_test

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
)

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
		if _, err := r.Deny(source, listener, time.Hour, "uid=7"); err != nil {
			t.Fatal(err)
		}
	}
	deny("10.0.0.0/8", "")
	deny("127.0.0.0/24", "web")
	whose(t, r.At("api"))
	const denied = 25
	for range denied {
		if c, err := net.Dial("tcp", r.At("web")); err == nil {
			reset(t, c)
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
	if err := r.Undeny("127.0.0.0/24", "web", "uid=7"); err != nil {
		t.Fatal(err)
	}
	whose(t, r.At("web"))
}
