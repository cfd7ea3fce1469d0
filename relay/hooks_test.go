package relay_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/penstock/penstock/relay"
)

// TestHooks: each event of a session calls its hook, in order.
func TestHooks(t *testing.T) {
	t.Parallel()

	var mu sync.Mutex
	var got []string
	var sessions []*relay.Session
	note := func(s *relay.Session, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		got, sessions = append(got, fmt.Sprintf(format, args...)), append(sessions, s)
	}
	r := newRelay(t, &relay.Config{PromoteBytes: 1000, PromoteReads: 1, DemoteBytes: 1000, DemoteReads: 1, Hooks: relay.Hooks{
		Started:       func(s *relay.Session) { note(s, "started") },
		EngineChanged: func(s *relay.Session, from relay.Side, now relay.Engine) { note(s, "%v %v", from, now) },
		Ended:         func(s *relay.Session, res relay.Result, err error) { note(s, "ended %v %v", res.Reason, err) },
	}})
	g := newRig(t, r, tcp, tcp)
	large, small := make([]byte, 1000), make([]byte, 10)
	pass(t, g.A, g.B, large)
	pass(t, g.B, g.A, small)
	pass(t, g.B, g.A, large)
	pass(t, g.A, g.B, small)
	cause := errors.New("enough")
	g.cancel(cause)
	_, _ = g.wait()
	mu.Lock()
	defer mu.Unlock()
	want := []string{"started", fmt.Sprint(relay.SideA, " splice"), fmt.Sprint(relay.SideB, " splice"), fmt.Sprint(relay.SideA, " copy"), "ended canceled enough"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, s := range sessions {
		if a, b := s.Conns(); s != sessions[0] || a.RemoteAddr().String() != g.A.LocalAddr().String() || b.RemoteAddr().String() != g.B.LocalAddr().String() {
			t.Errorf("session %p of %v and %v", s, a, b)
		}
	}
}
