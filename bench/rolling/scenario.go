package rolling

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/endpoint"
)

// A Scenario is a series of endpoint failures.
type Scenario struct {
	Name      string
	About     string // one line
	Endpoints int    // number of endpoints of each contestant
	Length    time.Duration
	steps     []step
}

// step is a new state of an endpoint. It begins at a time after the start of the load.
type step struct {
	at       time.Duration
	endpoint int
	state    endpoint.Failure
}

// Scenarios returns all scenarios in the order of a report. An endpoint is away for the time away, and all other
// times are in proportion. If away is 4 s, an endpoint is back for 6 s before the next one is away.
func Scenarios(away time.Duration) []Scenario {
	s := schedule{away: away, before: away / 2, back: away * 3 / 2}
	return []Scenario{
		s.rolling(), s.pair("pair", away), s.pair("brief", away/4), s.single(),
		s.one("refusing", endpoint.Refuse, 3*away, "refuses connections"),
		s.one("resetting", endpoint.Reset, 3*away, "accepts connections, and resets each at once"),
		s.known().one("mute", endpoint.Silent, 5*away, "accepts connections, and sends nothing"),
		s.known().frozen(),
	}
}

// schedule has the times of a scenario.
type schedule struct{ before, away, back time.Duration }

// known returns the schedule with a longer time before the first failure. A load balancer notices that an endpoint
// has stopped answering only if it knows that the endpoint answered before.
func (s schedule) known() schedule {
	s.before = 5 * s.away / 2
	return s
}

func (s schedule) rolling() Scenario {
	const endpoints = 3
	r := Scenario{
		Name: "rolling", About: fmt.Sprintf("each of three endpoints in turn is away for %v, and back for %v", s.away, s.back),
		Endpoints: endpoints, Length: s.before + endpoints*(s.away+s.back),
	}
	for i := range endpoints {
		at := s.before + time.Duration(i)*(s.away+s.back)
		r.steps = append(r.steps, step{at, i, endpoint.Refuse}, step{at + s.away, i, endpoint.Healthy})
	}
	return r
}

// pair has two endpoints, and at any time at least one of them is there. If the other is away only for a moment,
// checks do not notice that, but its clients do.
func (s schedule) pair(name string, away time.Duration) Scenario {
	dies := s.before + away + s.back
	return Scenario{
		Name: name, About: fmt.Sprintf("one of two endpoints is away for %v, back for %v, and then the other dies", away, s.back),
		Endpoints: 2, Length: dies + 5*s.away/2,
		steps: []step{{s.before, 0, endpoint.Refuse}, {s.before + away, 0, endpoint.Healthy}, {dies, 1, endpoint.Refuse}},
	}
}

// single has one endpoint that restarts. First it is away for a quarter of the time, and then for nearly half of
// it.
func (s schedule) single() Scenario {
	short, long := s.away/4, s.away*19/40
	second := s.before + short + s.back
	return Scenario{
		Name: "single", About: fmt.Sprintf("the only endpoint is away for %v, and after %v for %v", short, s.back, long),
		Endpoints: 1, Length: second + long + s.back,
		steps: []step{
			{s.before, 0, endpoint.Refuse},
			{s.before + short, 0, endpoint.Healthy},
			{second, 0, endpoint.Refuse},
			{second + long, 0, endpoint.Healthy},
		},
	}
}

// one has three endpoints. One of them fails and does not recover.
func (s schedule) one(name string, state endpoint.Failure, lasting time.Duration, about string) Scenario {
	return Scenario{Name: name, About: "one of three endpoints " + about, Endpoints: 3, Length: s.before + lasting, steps: []step{{s.before, 1, state}}}
}

// frozen has three endpoints. One of them is stopped and then continued.
func (s schedule) frozen() Scenario {
	lasting := 5 * s.away // longer than the timeout of a client
	f := s.one("frozen", endpoint.Frozen, lasting+s.back, fmt.Sprintf("is stopped for %v, and then continues", lasting))
	f.steps = append(f.steps, step{s.before + lasting, 1, endpoint.Healthy})
	return f
}
