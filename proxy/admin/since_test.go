package admin

import (
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/rollback"
)

// troubled has the problems of a status that it is given.
type troubled struct {
	Balancer
	st Status
}

func (b *troubled) Status() Status { return b.st }

// still has one generation.
type still struct{ Reloader }

func (still) Generations() rollback.Status { return rollback.Status{Current: 1} }

// TestProblemsHaveATime: each problem has the time at which it began, or was seen first, for as long as it lasts.
func TestProblemsHaveATime(t *testing.T) {
	t.Parallel()

	down := Endpoint{Name: "d", State: Down, Weight: 1}
	b := &troubled{st: Status{State: Serving, Summary: Summary{SessionLog: &SessionLog{DroppedLastMinute: 1}}, Upstreams: []Upstream{{Name: "u", Endpoints: []Endpoint{down}}}}}
	b.st.Listeners = []Listener{{Name: "l", Certificates: []Certificate{{Ends: time.Unix(1, 0)}}}}
	s := New(Config{Balancer: b, Reloader: still{}, Leaving: func() (time.Time, bool) { return time.Time{}, false }})
	defer s.Close(t.Context())
	first := s.current().Problems
	if len(first) != 3 {
		t.Fatal(first)
	}
	again := s.current().Problems
	for i, p := range first {
		if p.Since.IsZero() || !again[i].Since.Equal(p.Since) || p.Kind == "certificate_expired" && p.Since.Unix() != 1 {
			t.Errorf("%+v, then %+v", p, again[i])
		}
	}
	b.st.Upstreams[0].Endpoints[0].State = Up
	s.current()
	b.st.Upstreams[0].Endpoints[0].State = Down
	later := s.current().Problems
	for i, p := range later {
		if changed := !p.Since.Equal(first[i].Since); changed != (p.Kind == "endpoint_down") {
			t.Errorf("%+v, and first %+v", p, first[i])
		}
	}
}
