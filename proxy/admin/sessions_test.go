package admin_test

import "testing"

// TestSessions: sessions are listed up to a bound, and the list says so if there are more.
func TestSessions(t *testing.T) {
	for n, want := range map[int]struct {
		listed int
		more   bool
	}{0: {0, false}, 3: {3, false}, 50_000: {50_000, false}, 50_001: {50_000, true}} {
		r := newRig(t, "")
		r.balancer.sessions = n
		s, err := r.Sessions(t.Context())
		if err != nil || s.Sessions == nil || len(s.Sessions) != want.listed || s.More != want.more {
			t.Errorf("%d sessions: %d are listed, more %v, %v", n, len(s.Sessions), s.More, err)
		}
	}
}
