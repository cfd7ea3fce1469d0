package state_test

import (
	"testing"

	"github.com/penstock/penstock/lane/internal/state"
)

// stuck returns how many worlds lead to none in which all units have arrived, of those after it has left.
func stuck(m mutant) (worlds, bad int) {
	start := world{word: uint8(state.Lane), leaves: 1}
	start.user = user{registered: true, grace: true, arms: m.arms}
	number, all := map[world]int{start: 0}, []world{start}
	before := [][]int32{nil}
	for at := 0; at < len(all); at++ {
		w := all[at]
		w.next(m, func(n world, _ string) {
			n = n.canonical()
			to, seen := number[n]
			if !seen {
				to = len(all)
				number[n], all, before = to, append(all, n), append(before, nil)
			}
			before[to] = append(before[to], int32(at))
		})
	}
	good := make([]bool, len(all))
	var queue []int32
	for i, w := range all {
		if w.arrived(m.units) {
			good[i], queue = true, append(queue, int32(i))
		}
	}
	for len(queue) > 0 {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, b := range before[at] {
			if !good[b] {
				good[b], queue = true, append(queue, b)
			}
		}
	}
	for _, ok := range good {
		if !ok {
			bad++
		}
	}
	return len(all), bad
}

// TestGoesOn: wherever a session is that goes back and forth, all units can arrive yet. It needs that
// acknowledgements catch up after a return.
func TestGoesOn(t *testing.T) {
	if race {
		t.Skip("as TestModel")
	}
	sc := scenario{units: [2]uint8{1, 1}, arms: 1, returns: 1, ends: true}
	if worlds, bad := stuck(mutant{scenario: sc}); bad != 0 {
		t.Errorf("%d of %d worlds lead nowhere", bad, worlds)
	}
	if worlds, bad := stuck(mutant{scenario: sc, noCatchUp: true}); bad == 0 {
		t.Errorf("none of %d worlds is stuck without it", worlds)
	}
}

// explore visits every world that there is, and returns how many there are and the first promise
// that one breaks, with the course that leads there.
func explore(m mutant) (worlds int, bad string, course []world) {
	var start world
	start.user.owns = true
	from := map[world]world{start: start}
	for queue := []world{start}; len(queue) > 0; {
		w := queue[0]
		queue = queue[1:]
		w.next(m, func(n world, why string) {
			if bad != "" {
				return
			}
			if why == "" {
				why = n.broken()
			}
			n = n.canonical()
			_, seen := from[n]
			if seen && why == "" {
				return
			}
			if !seen {
				from[n] = w
				queue = append(queue, n)
			}
			if why != "" {
				bad = why
				for at := n; ; at = from[at] {
					course = append(course, at)
					if at == start {
						return
					}
				}
			}
		})
		if bad != "" {
			return len(from), bad, course
		}
	}
	return len(from), "", nil
}

// scenarios are explored one by one: together they would be too many worlds.
var scenarios = map[string]scenario{
	"data both ways":         {units: [2]uint8{1, 1}, arms: 1},
	"armed twice":            {units: [2]uint8{1, 0}, arms: 2},
	"two units":              {units: [2]uint8{2, 0}, arms: 1},
	"an endpoint resets":     {units: [2]uint8{1, 0}, arms: 1, resets: true},
	"the process dies":       {units: [2]uint8{1, 0}, arms: 1, dies: true},
	"the session comes back": {units: [2]uint8{1, 1}, arms: 1, returns: 1},
	"back and forth":         {units: [2]uint8{2, 0}, arms: 2, returns: 2},
	"a reset at the return":  {units: [2]uint8{1, 0}, arms: 1, returns: 1, resets: true},
	"another process adopts": {units: [2]uint8{1, 0}, arms: 1, returns: 1, dies: true, adopts: true},
}

// TestModel: no course of two CPUs, user space, the sockets and a death breaks a promise: no byte
// is in two places or in none, one CPU alone has it leave, no FIN or RST of a ghost leaves, and user space
// touches no socket that it has not taken back. Every change of the table is made by some course.
func TestModel(t *testing.T) {
	if race {
		t.Skip("the model is of one goroutine, and takes ten times as long with the race detector")
	}
	for name, sc := range scenarios {
		t.Run(name, func(t *testing.T) {
			worlds, bad, course := explore(mutant{scenario: sc})
			t.Logf("%d worlds", worlds)
			if bad == "" {
				return
			}
			for i := len(course) - 1; i >= 0; i-- {
				t.Logf("%+v", course[i])
			}
			t.Fatal(bad)
		})
	}
	reaped := func(tr state.Transition) bool { return tr.To == state.Free } // not a matter of this model
	for _, tr := range state.Transitions {
		if !reaped(tr) && !exercised[[3]uint8{uint8(tr.From), uint8(tr.To), uint8(tr.By)}] {
			t.Errorf("no course changes %v to %v by %v", tr.From, tr.To, tr.By)
		}
	}
}

// TestMutants: without one of the mechanisms, some course breaks a promise.
func TestMutants(t *testing.T) {
	both, twice := scenarios["data both ways"], scenarios["armed twice"]
	reset, death := scenarios["an endpoint resets"], scenarios["the process dies"]
	back := scenarios["the session comes back"]
	for name, m := range map[string]mutant{
		"the return does not wait":           {scenario: back, noStop: true},
		"restored at what was carried":       {scenario: back, asCarried: true},
		"user space has it before sockets":   {scenario: back, early: true},
		"no grace period":                    {scenario: both, noGrace: true},
		"the state is not read again":        {scenario: both, noAgain: true},
		"no claim is taken away":             {scenario: both, noSpoil: true},
		"claims are not counted":             {scenario: twice, noCount: true},
		"notes are not looked at":            {scenario: both, noNotes: true},
		"no guard at egress":                 {scenario: death, noGuard: true},
		"user space takes what the lane has": {scenario: both, noDisarm: true},
		"leaving is no compare-and-swap":     {scenario: both, noSwap: true},
		"resets are not noted":               {scenario: reset, noReset: true},
	} {
		t.Run(name, func(t *testing.T) {
			worlds, bad, _ := explore(m)
			if bad == "" {
				t.Errorf("none of %d worlds breaks a promise", worlds)
			} else {
				t.Logf("after %d worlds: %s", worlds, bad)
			}
		})
	}
}
