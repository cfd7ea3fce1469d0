package monitor_test

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/internal/monitor"
)

// A stage is one upstream that is looked at.
type stage struct {
	book
	t *testing.T
	*monitor.Outages
	up monitor.Upstream
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, up: monitor.Upstream{Key: 1, Name: "shop"}}
	s.Outages = monitor.NewOutages(s.log())
	return s
}

// look looks at a time at which the upstream is in a condition, and as many clients more were
// refused, and twice as many held.
func (s *stage) look(seconds float64, c monitor.Condition, refused int64, lines ...string) {
	s.t.Helper()
	s.up.Condition = c
	s.up.Refused += refused
	s.up.Held += 2 * refused
	s.Look(at(seconds), []monitor.Upstream{s.up}, func(any) string { return "a: down" })
	s.says(s.t, name(int(seconds)), lines...)
}

const (
	begins = `level=WARN msg="upstream has no usable endpoint" upstream=shop cause="a: down"`
	ends   = `level=INFO msg="upstream has a usable endpoint again" upstream=shop duration=`
)

// TestOutageIsLoggedOnce at its begin, and at its end with its duration and the clients that it
// has cost, counted from the last look before it.
func TestOutageIsLoggedOnce(t *testing.T) {
	s := newStage(t)
	s.look(1, monitor.Usable, 5)
	s.look(2, monitor.Unusable, 7, begins)
	s.look(3, monitor.Unusable, 100)
	if o, ok := s.Of(1); !ok || o.Since != at(2) || o.Refused != 107 || o.Held != 214 || o.Condition != monitor.Unusable {
		t.Errorf("it is %+v, %v", o, ok)
	}
	s.look(12, monitor.Usable, 1)
	if o, ok := s.Of(1); ok {
		t.Errorf("when it is over: %+v", o)
	}
	s.look(13, monitor.Usable, 10, ends+"10s refused=108 held=216 fallbacks=0")
	s.look(14, monitor.Usable, 0)
}

// TestOutageThatIsBack: an outage that recurs is reported as begun when it came back, with the
// clients that it has cost since. Its line at the end is about all of it.
func TestOutageThatIsBack(t *testing.T) {
	s := newStage(t)
	s.look(1, monitor.Usable, 0)
	s.look(2, monitor.Unusable, 7, begins)
	s.look(3, monitor.Usable, 1)
	s.look(3.5, monitor.Unusable, 2)
	s.look(4, monitor.Unusable, 3)
	if o, ok := s.Of(1); !ok || o.Since != at(3.5) || o.Refused != 5 || o.Held != 10 {
		t.Errorf("it is %+v, %v", o, ok)
	}
	s.look(5, monitor.Usable, 0)
	s.look(6, monitor.Usable, 0, ends+"3s refused=13 held=26 fallbacks=0 recurred=1")
}

// TestUpstreamThatGoesInAnOutage: the line at its end reports that the upstream is gone.
func TestUpstreamThatGoesInAnOutage(t *testing.T) {
	s := newStage(t)
	s.look(1, monitor.Usable, 0)
	s.look(2, monitor.Unusable, 7, begins)
	s.Look(at(4), nil, nil)
	s.says(t, "it is gone", `level=INFO msg="upstream that could take no clients is gone" upstream=shop duration=2s refused=7 held=14 fallbacks=0`)
	s.Look(at(5), nil, nil)
	s.says(t, "it was gone")
}

// TestUpstreamThatGoesAfterAnOutage: the end of the outage was logged when it was over, and is not
// logged again.
func TestUpstreamThatGoesAfterAnOutage(t *testing.T) {
	s := newStage(t)
	s.look(1, monitor.Usable, 0)
	s.look(2, monitor.Unusable, 7, begins)
	s.look(3, monitor.Usable, 0)
	s.look(4, monitor.Usable, 0, ends+"1s refused=7 held=14 fallbacks=0")
	s.Look(at(5), nil, nil)
	s.says(t, "it is gone")
}

// TestOutageThatRecurs is logged less and less often.
func TestOutageThatRecurs(t *testing.T) {
	s := newStage(t)
	now := 0.0
	lines := 0
	for range 360 { // half an hour of 2 s and 3 s
		for _, c := range []monitor.Condition{monitor.Unusable, monitor.Unusable, monitor.Usable, monitor.Usable, monitor.Usable} {
			now++
			s.up.Condition = c
			s.Look(at(now), []monitor.Upstream{s.up}, func(any) string { return "" })
			lines += strings.Count(s.text.String(), "\n")
			s.text.Reset()
		}
	}
	if lines > 8 {
		t.Errorf("%d lines of an upstream that flaps", lines)
	}
	s.Look(at(now+40), []monitor.Upstream{s.up}, nil)
	if text := s.text.String(); !strings.Contains(text, "recurred=") {
		t.Errorf("its end is logged as %q", text)
	}
	s.text.Reset()
	s.look(now+200, monitor.Unusable, 0, begins)
	s.look(now+201, monitor.Usable, 0)
	s.look(now+202, monitor.Usable, 0, ends+"1s refused=0 held=0 fallbacks=0")
}

// TestFullIsNoOutage for a moment, and one of its own after some seconds.
func TestFullIsNoOutage(t *testing.T) {
	s := newStage(t)
	for i := range 100 {
		s.look(float64(i), monitor.Full, 1)
		if i%4 == 3 {
			s.look(float64(i)+.5, monitor.Usable, 0)
		}
	}
	s.look(100, monitor.Usable, 0)
	s.look(101, monitor.Full, 0)
	s.look(105.9, monitor.Full, 3)
	s.look(106, monitor.Full, 1, `level=WARN msg="every usable endpoint of the upstream is at its limit" upstream=shop cause="a: down"`)
	s.look(107, monitor.Unusable, 2, begins)
	s.look(110, monitor.Full, 1)
	s.look(111, monitor.Full, 1, strings.Replace(ends, "a usable endpoint again", "usable endpoints again, which are at their limit", 1)+"3s refused=3 held=6 fallbacks=0")
}

// TestAFullUpstreamHasRoom is the end of a time at the limit.
func TestAFullUpstreamHasRoom(t *testing.T) {
	s := newStage(t)
	s.look(1, monitor.Full, 0)
	s.look(6, monitor.Full, 1, `level=WARN msg="every usable endpoint of the upstream is at its limit" upstream=shop cause="a: down"`)
	s.look(8, monitor.Usable, 1)
	s.look(9, monitor.Usable, 0, strings.Replace(ends, "upstream has a usable endpoint again", "upstream is not at its limit any more", 1)+"7s refused=2 held=4 fallbacks=0")
}

// TestManyOutages are some lines, and the number of the others.
func TestManyOutages(t *testing.T) {
	s := newStage(t)
	all := make([]monitor.Upstream, 1000)
	look := func(seconds float64, c monitor.Condition) (lines int, text string) {
		for i := range all {
			all[i] = monitor.Upstream{Key: i, Name: name(i), Condition: c}
		}
		s.Look(at(seconds), all, func(any) string { return "" })
		text = s.text.String()
		s.text.Reset()
		return strings.Count(text, "\n"), text
	}
	if n, text := look(1, monitor.Unusable); n != 21 || !strings.Contains(text, `msg="further upstreams have no usable endpoint" upstreams=980`) {
		t.Errorf("%d lines, of them %s", n, text)
	}
	look(2, monitor.Usable)
	if n, text := look(3, monitor.Usable); n != 21 || !strings.Contains(text, `upstreams=980`) {
		t.Errorf("%d lines at the end, of them %s", n, text)
	}
	s.Look(at(4), nil, nil)
	if _, ok := s.Of(1); ok {
		t.Error("an upstream that is gone has an outage")
	}
}

// TestUnservedOfAnOutage: sessions that endpoints have ended without a byte are among its cost.
func TestUnservedOfAnOutage(t *testing.T) {
	s := newStage(t)
	s.up.Unserved = 4
	s.look(1, monitor.Usable, 0)
	s.up.Unserved = 9
	s.look(2, monitor.Unusable, 0, begins)
	s.up.Unserved = 140
	s.look(3, monitor.Unusable, 0)
	if o, ok := s.Of(1); !ok || o.Unserved != 136 {
		t.Errorf("it is %+v, %v", o, ok)
	}
	s.look(4, monitor.Usable, 0)
	s.look(5, monitor.Usable, 0, ends+"2s refused=0 held=0 fallbacks=0 unserved=136")
}
