package admin_test

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
)

// TestWhy: a query arrives as it was asked, and its bounds are kept.
func TestWhy(t *testing.T) {
	r := newRig(t, "")
	w, err := r.Why(t.Context(), admin.WhyQuery{For: 2 * time.Second, Upstream: "shop"})
	if err != nil || w.WindowUs != 2_000_000 || w.Verdict != "shop" {
		t.Errorf("%+v, %v", w, err)
	}
	for _, q := range []admin.WhyQuery{
		{Session: "10.0.0.1:5"}, {Listener: "l"}, {Endpoint: "e"}, {Source: netip.MustParsePrefix("10.0.0.0/8")}, {},
	} {
		if _, err := r.Why(t.Context(), q); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
	_, err = r.Why(t.Context(), admin.WhyQuery{For: admin.MaxWhy + 1})
	refused(t, err, http.StatusBadRequest, "write a time up to 1m0s")
	_, err = r.Why(t.Context(), admin.WhyQuery{Upstream: "a", Listener: "b"})
	refused(t, err, http.StatusBadRequest, "not for those beside it")
	for _, text := range []string{"", "x", "10.0.0.1:80", "10.0.0.0/40"} {
		if p, err := admin.ParseSource(text); err == nil {
			t.Errorf("%q is %v", text, p)
		}
	}
}
