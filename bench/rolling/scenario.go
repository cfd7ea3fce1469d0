package rolling

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/endpoint"
)

// A Scenario is a series of endpoint failures.
type Scenario struct {
	Name      string
	About     string // one line
	Endpoints int    // of each contestant
	Length    time.Duration
	steps     []step
}

// step is a new state of an endpoint, and the time after the start of the load at which
// it begins.
type step struct {
	at       time.Duration
	endpoint int
	state    endpoint.Failure
}

// frozen is the state of an endpoint with a stopped process, beside the states of package endpoint.
const frozen endpoint.Failure = "frozen"

// Scenarios returns all, in the order of a report, with endpoints that are away for that
// long. All other times are in proportion: with 4 s an endpoint is back for 6 s before the
// next one is away.
func Scenarios(away time.Duration) []Scenario {
	s := schedule{away: away, before: away / 2, back: away * 3 / 2}
	return []Scenario{
		s.rolling(), s.pair("pair", away), s.pair("brief", away/4), s.single(),
		s.one("refusing", endpoint.Refuse, 3*away, "refuses connections"),
		s.one("resetting", endpoint.Reset, 3*away, "accepts connections, and resets each at once"),
		s.known().one("mute", endpoint.Silent, 5*away, "accepts connections, and says nothing"),
		s.known().frozen(),
	}
}

// Named are the scenarios of these names, in the order of all.
func Named(all []Scenario, names []string) ([]Scenario, error) {
	known := make([]string, len(all))
	for i := range all {
		known[i] = all[i].Name
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("no scenario %q: write %s", name, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(s Scenario) bool { return !slices.Contains(names, s.Name) }), nil
}

// schedule are the times of scenarios.
type schedule struct{ before, away, back time.Duration }

// known is the same after a longer time in which all is well. To notice that an endpoint
// has stopped answering, a load balancer has to know that it answered before.
func (s schedule) known() schedule {
	s.before = 5 * s.away / 2
	return s
}

// rolling is a rolling restart.
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

// pair is two endpoints, and one of them is always there. If the other is away only for a moment, checks
// do not notice it, while its clients do.
func (s schedule) pair(name string, away time.Duration) Scenario {
	dies := s.before + away + s.back
	return Scenario{
		Name: name, About: fmt.Sprintf("one of two endpoints is away for %v, back for %v, and then the other one dies", away, s.back),
		Endpoints: 2, Length: dies + 5*s.away/2,
		steps: []step{{s.before, 0, endpoint.Refuse}, {s.before + away, 0, endpoint.Healthy}, {dies, 1, endpoint.Refuse}},
	}
}

// single is an endpoint that restarts, first in a quarter of the time, then in nearly half
// of it.
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

// one is one of three endpoints that fails, for good.
func (s schedule) one(name string, state endpoint.Failure, lasting time.Duration, about string) Scenario {
	return Scenario{Name: name, About: "one of three endpoints " + about, Endpoints: 3, Length: s.before + lasting, steps: []step{{s.before, 1, state}}}
}

// frozen is one of three endpoints that is stopped, and goes on.
func (s schedule) frozen() Scenario {
	lasting := 5 * s.away // longer than a client is patient
	f := s.one("frozen", frozen, lasting+s.back, fmt.Sprintf("is stopped for %v, and goes on", lasting))
	f.steps = append(f.steps, step{s.before + lasting, 1, endpoint.Healthy})
	return f
}
