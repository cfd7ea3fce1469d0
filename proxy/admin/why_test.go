package admin_test

import (
	"net/http"
	"net/netip"
	"strings"
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
	for _, text := range []string{"", "x", "10.0.0.1:80", "10.0.0.0/40", "10.0.0.1/8"} {
		if p, err := admin.ParseSource(text); err == nil {
			t.Errorf("%q is %v", text, p)
		}
	}
}

// TestTimes: a time has each unit once, the larger ones first.
func TestTimes(t *testing.T) {
	r := newRig(t, "127.0.0.1:0")
	for text, want := range map[string]int{
		"1h1h": 400, "1m1h": 400, "1s1s": 400, "1ms1s": 400, "1h0s0s": 400, "1h": 200, "1h1m1s": 200, "1h1s": 200, "1.5h": 200, "1000000us": 200,
	} {
		code, body := posted(t, dialed(t, r.Addr()), "/v1/deny/add?source=10.0.0.7&for="+text)
		if code != want || code == 400 && !strings.Contains(body, "is not a time") {
			t.Errorf("%s: %d %s", text, code, body)
		}
	}
	if code, body := posted(t, dialed(t, r.Addr()), "/v1/reload?confirm=1m1m"); code != 400 {
		t.Errorf("confirm: %d %s", code, body)
	}
}
