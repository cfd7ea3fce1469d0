package state_test

import (
	"fmt"
	"testing"

	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/lane/internal/state"
)

// stuck returns how many worlds can be reached after the session has left, and from how many of them no world
// can be reached in which all units have arrived.
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

// TestGoesOn: all units can still arrive, wherever a session is that leaves and comes back. For that,
// acknowledgements must catch up after a return.
func TestGoesOn(t *testing.T) {
	if race.Enabled {
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

// explore visits every world. It returns how many there are, the first promise that a world breaks, and the
// course that leads to that world.
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

// scenarios are explored one by one, because together they would have too many worlds.
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

// TestModel: no course of two CPUs, user space, the sockets and a death breaks a promise. No byte is in two
// places or in none. Only one CPU makes the session leave. No FIN or RST of a ghost gets out. User space
// touches only sockets that it has taken back. Some course makes every change of the table.
func TestModel(t *testing.T) {
	if race.Enabled {
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
	reaped := func(tr state.Transition) bool { return tr.To == state.Free } // this model has no such change
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

// A world is a session with everything that can happen to it: the memory that the programs share, two sockets,
// two endpoints, two CPUs that run the programs step by step, and the process. The endpoints send units instead
// of bytes. Worlds are compared, so they have no pointers.
//
// The endpoint of side i sends the units 0, 1, …. Unit n of side i is delivered to endpoint 1-i at a position,
// which must be n.
type world struct {
	word  uint8 // the state
	count uint8 // the number of changes, for claims
	note  [2]uint8
	reset [2]bool // an RST of the endpoint was noted

	endpoint [2]endpoint
	socket   [2]socket
	cpu      [2]cpu
	user     user

	shift   [2]int8  // the shift of positions, once claimed
	seen    [2]uint8 // units of the other side that the endpoint has acknowledged, as the lane knows
	carried [2]uint8 // units of this side that the lane has carried
	passed  bool     // an RST has passed in the lane
	leaves  uint8
	killed  bool
	adopted bool // by a second process
}

// An endpoint has sent units, knows how many of them were acknowledged, has received units of the other side,
// and may have reset its connection.
type endpoint struct {
	sent, una, got uint8
	reset          bool
}

// A socket is a socket of the proxy. It has units from its endpoint that were received and read, and units to
// its endpoint that were written and acknowledged.
type socket struct {
	rcv, read, written, acked uint8
	closed                    bool // by the process or an RST: no longer established
	absent                    bool // the ghost is gone
	finDue, finOut            bool // a FIN or RST is on its way to the guard, or has left
}

// A cpu is one run of the ingress program for a packet.
type cpu struct {
	at    step
	side  uint8
	unit  uint8
	ack   uint8 // units of the other side that the endpoint has when it sends the packet
	rst   bool
	pure  bool  // an acknowledgement without a unit
	claim uint8 // the count of its claim
	fit   bool  // what it has seen so far allows it to leave
	notes [2]uint8
	shift [2]int8
	old   bool // it has begun before the grace period for which user space waits
}

type user struct {
	owns       bool // it believes that it may touch the sockets
	registered bool
	grace      bool // it has waited for a grace period
	waiting    bool
	held       [2]uint8 // units of side i that were read and not written yet
	arms       uint8
	returns    uint8
}

// A step says where a run of the program is.
type step uint8

const (
	idle step = iota
	readState
	claim
	lookNotes
	look0
	look1
	commit
	note
	giveUp
	again
	spoil
	deliver
	translate
)

// A scenario bounds what can happen.
type scenario struct {
	units   [2]uint8 // how many units each endpoint sends
	arms    uint8    // how often user space arms
	resets  bool     // an endpoint may reset its connection
	returns uint8    // how often user space stops the lane
	dies    bool     // the process may die
	adopts  bool     // another process may adopt the session after that
	ends    bool     // from every world, all units can arrive and be acknowledged, unless there is a reset
}

// A mutant is a scenario that lacks one of the mechanisms.
type mutant struct {
	scenario
	noGrace, noAgain, noSpoil, noSwap, noCount, noNotes, noGuard, noDisarm, noReset bool

	noStop, asCarried, early, noCatchUp bool // mechanisms of the return
}

// over reports whether nothing more of interest can happen: the session has died in user space.
func (w *world) over() bool {
	return w.killed && w.state() < state.Armed && w.socket[0].closed && w.socket[1].closed
}

// arrived reports whether all units have arrived and are acknowledged.
func (w *world) arrived(units [2]uint8) bool {
	return w.endpoint[0].una == units[0] && w.endpoint[1].una == units[1]
}

// canonical returns the same world for both orders of the CPUs.
func (w world) canonical() world {
	a, b := w.cpu[0], w.cpu[1]
	if a.rank() < b.rank() {
		w.cpu[0], w.cpu[1] = b, a
	}
	return w
}

func (p *cpu) rank() int {
	n := int(p.at)<<8 | int(p.side)<<7 | int(p.unit)<<4 | int(p.claim)<<1
	if p.rst {
		n |= 8
	}
	if p.old {
		n |= 1
	}
	if p.pure {
		n |= 1 << 15
	}
	return n<<20 | int(p.ack)<<16 | int(p.notes[0])<<8 | int(p.notes[1])
}

// change makes a change of state. The table must have the change.
func (w *world) change(to state.State, by state.Actor) {
	from := state.State(w.word)
	if !state.Allowed(from, to, by) {
		panic(fmt.Sprintf("the table has no change from %v to %v by %v", from, to, by))
	}
	w.word = uint8(to)
	if to == state.Claimed || to == state.Armed {
		w.count++ // only changes with which another change could be confused
	}
	if to == state.Lane {
		w.leaves++
	}
	exercised[[3]uint8{uint8(from), uint8(to), uint8(by)}] = true
}

// exercised are the changes that at least one world has made.
var exercised = make(map[[3]uint8]bool)

func (w *world) state() state.State { return state.State(w.word) }

// broken returns the promise that the world breaks, or "".
func (w *world) broken() string {
	s := w.state()
	if w.leaves > 1 {
		return "the session left twice without coming back"
	}
	for i := range 2 {
		in, out, from, to := &w.socket[i], &w.socket[1-i], &w.endpoint[i], &w.endpoint[1-i]
		if s == state.Lane {
			switch {
			case in.rcv != in.read || w.user.held[i] != 0 || out.written != in.rcv:
				return fmt.Sprintf("side %d: a byte is in the proxy and the session in the lane", i)
			case w.shift[i] != 0:
				return "the offset is wrong"
			case in.finOut:
				return "a FIN or RST of a ghost has left"
			}
		}
		if s == state.Lane && to.got < from.una {
			return fmt.Sprintf("side %d: a byte is nowhere: acknowledged, and not there", i)
		}
		if s == state.User && !w.killed && !in.closed && !out.closed {
			switch {
			case in.rcv < from.una:
				return fmt.Sprintf("side %d: a byte is nowhere after the return", i)
			case out.acked > to.got:
				return fmt.Sprintf("side %d: a socket takes as acknowledged what is not there", i)
			case out.written+w.user.held[i] != in.read:
				return fmt.Sprintf("side %d: the sockets disagree on a position", i)
			}
		}
	}
	return ""
}

// next calls yield for every world that is one step of some actor away.
func (w world) next(m mutant, yield func(world, string)) {
	if w.over() {
		return
	}
	for c := range 2 {
		w.arrivals(m, c, yield)
		if w.cpu[c].at != idle {
			n := w
			if bad := n.run(m, c); n != w || bad != "" {
				yield(n, bad)
			}
		}
		if p := &w.cpu[c]; m.returns > 0 && p.at == translate && !p.rst { // the packet is lost behind the lane
			n := w
			n.lose(p)
			n.cpu[c] = cpu{}
			yield(n, "")
		}
	}
	for i := range 2 {
		w.sockets(m, i, yield)
	}
	if w.killed {
		w.adopt(m, yield)
		return
	}
	w.process(m, yield)
	if n := w; m.dies {
		n.killed, n.user.owns = true, false // the kernel closes the sockets in either order
		yield(n, "")
	}
}

// arrivals are the packets that the endpoints can send: the next unit, a unit that is not acknowledged once
// more, or an RST.
func (w world) arrivals(m mutant, c int, yield func(world, string)) {
	if w.cpu[c].at != idle {
		return
	}
	for i := range uint8(2) {
		e := &w.endpoint[i]
		if e.reset {
			continue
		}
		for unit := e.una; unit <= e.sent && unit < m.units[i]; unit++ {
			n := w
			n.cpu[c] = cpu{at: readState, side: i, unit: unit, ack: e.got, old: w.user.waiting}
			n.endpoint[i].sent = max(e.sent, unit+1)
			yield(n, "")
		}
		if n := w; m.returns > 0 && w.state() >= state.Lane && (w.seen[i] < e.got || w.endpoint[1-i].una < e.got) {
			n.cpu[c] = cpu{at: readState, side: i, pure: true, ack: e.got, old: w.user.waiting}
			yield(n, "")
		}
		if n := w; m.resets && i == 1 { // one endpoint that resets is enough
			n.cpu[c] = cpu{at: readState, side: i, rst: true, old: w.user.waiting}
			n.endpoint[i].reset = true
			yield(n, "")
		}
	}
}

// sockets are the steps of the kernel: acknowledgements, units that go out, and closing.
func (w world) sockets(m mutant, i int, yield func(world, string)) {
	s, e := &w.socket[i], &w.endpoint[i]
	if !s.closed && w.endpoint[i].una < s.rcv && w.state() < state.Lane {
		n := w
		n.endpoint[i].una = s.rcv
		yield(n, "")
	}
	if s.written > e.got && !s.closed { // a unit goes out through the guard
		n := w
		if n.guard(m, false) {
			n.endpoint[i].got++
			yield(n, "")
		} else if n != w {
			yield(n, "")
		}
	}
	if s.acked < min(e.got, s.written) && w.state() < state.Lane {
		n := w
		n.socket[i].acked = min(e.got, s.written)
		yield(n, "")
	}
	if w.killed && !s.closed {
		n := w
		n.socket[i].closed, n.socket[i].finDue = true, true
		yield(n, "")
	}
	if s.finDue {
		n := w
		n.socket[i].finDue = false
		n.socket[i].finOut = n.guard(m, true)
		yield(n, "")
	}
	if from := &w.endpoint[1-i]; m.returns == 0 && w.state() == state.Lane && from.una < e.got { // an acknowledgement in the lane
		n := w
		n.seen[i], n.endpoint[1-i].una = e.got, e.got
		yield(n, "")
	}
}

// guard is the egress program. It reports whether the packet gets out.
func (w *world) guard(m mutant, end bool) bool {
	if m.noGuard {
		return true
	}
	switch state.Leaving(w.state()) {
	case state.Drop, state.Confine: // there is no step for acknowledgements
		return false
	case state.Disarm:
		if end || w.state() == state.Claimed {
			w.change(state.User, state.Egress)
		}
	}
	return true
}

// process are the steps of user space.
func (w world) process(m mutant, yield func(world, string)) {
	u := &w.user
	do := func(f func(n *world)) { n := w; f(&n); yield(n, "") }
	idle := u.held == [2]uint8{} && !w.socket[0].closed && !w.socket[1].closed
	quiet := (!w.cpu[0].old || w.cpu[0].at == idleStep) && (!w.cpu[1].old || w.cpu[1].at == idleStep)
	switch {
	case !u.registered:
		do(func(n *world) { n.change(state.User, state.Owner); n.user.registered = true; n.wait() })
	case u.waiting && (quiet || m.noGrace):
		do(func(n *world) { n.user.waiting, n.user.grace = false, true })
	}
	if u.owns {
		for i := range 2 {
			w.relay(i, yield)
		}
	}
	if u.owns && u.registered && u.grace && idle && u.arms < m.arms && !u.waiting && w.state() == state.User {
		do(func(n *world) { n.change(state.Armed, state.Owner); n.user.owns = false; n.user.arms++ })
	}
	if !u.owns {
		w.disarm(m, do)
	}
	if m.returns > 0 {
		w.comeBack(m, quiet, do)
	}
}

const idleStep = idle

// wait begins a grace period, which lasts until the runs end that have begun before.
func (w *world) wait() {
	w.user.waiting, w.user.grace = true, false
	for c := range w.cpu {
		w.cpu[c].old = w.cpu[c].at != idle
	}
}

// relay reads or writes a unit of side i. It breaks a promise to touch a socket while user space does not have
// the session.
func (w world) relay(i int, yield func(world, string)) {
	if s := w.state(); s != state.User && s != state.Free {
		yield(w, "user space touches a socket in state "+s.String())
	}
	if s := &w.socket[i]; s.read < s.rcv && !s.closed {
		n := w
		n.socket[i].read++
		n.user.held[i]++
		yield(n, "")
	}
	if w.user.held[i] > 0 && !w.socket[1-i].closed {
		n := w
		n.user.held[i]--
		n.socket[1-i].written++
		yield(n, "")
	}
}

// disarm takes the session back, or finds that it cannot.
func (w world) disarm(m mutant, do func(func(*world))) {
	switch s := w.state(); {
	case s == state.Armed || s == state.Claimed:
		do(func(n *world) { n.change(state.User, state.Owner); n.user.owns = true })
	case s == state.User && !w.socket[0].absent, m.noDisarm && s == state.Lane:
		do(func(n *world) { n.user.owns = true })
	}
}

// run makes one step of the ingress program on a CPU, and returns the promise that the step breaks.
func (w *world) run(m mutant, c int) string {
	p := &w.cpu[c]
	switch p.at {
	case readState:
		w.first(m, p)
	case claim:
		w.claim(p)
	case lookNotes: // before the sockets: a packet that is noted but not at its socket yet must be noticed
		p.notes, p.at = w.note, look0
		p.fit = m.noReset || m.noNotes || w.reset == [2]bool{}
	case look0, look1:
		w.look(m, p, int(p.at-look0))
		if p.at++; p.at == commit {
			p.notes = [2]uint8{}
		}
		if !p.fit {
			p.at, p.notes, p.shift = note, [2]uint8{}, [2]int8{}
		}
	case commit:
		if m.noSwap {
			w.word = uint8(state.Claimed)
		}
		if w.state() == state.Claimed && (m.noSwap || m.noCount || w.count == p.claim) {
			w.change(state.Lane, state.Claimer)
			w.shift = p.shift
			w.seen = [2]uint8{w.socket[0].written, w.socket[1].written}
			w.carried, w.passed = [2]uint8{w.socket[0].rcv, w.socket[1].rcv}, false
			*p = cpu{at: translate, side: p.side, unit: p.unit, ack: p.ack, old: p.old}
		} else {
			*p = cpu{at: note, side: p.side, unit: p.unit, ack: p.ack, old: p.old}
		}
	case note:
		if p.rst {
			w.reset[p.side] = true
		} else {
			w.note[p.side] = max(w.note[p.side], p.unit+1)
		}
		if p.at = again; p.claim != 0 {
			p.at = giveUp
		}
		if m.noAgain {
			p.at = deliver
		}
	case giveUp:
		if w.state() == state.Claimed && w.count == p.claim {
			w.change(state.User, state.Claimer)
		}
		p.at, p.claim = again, 0
	case again:
		w.again(m, p)
	case spoil:
		if p.at = again; w.state() == state.Claimed {
			w.change(state.User, state.Ingress)
			p.at = deliver
		}
	case deliver:
		return w.deliver(m, p)
	case translate:
		return w.translate(p)
	}
	return ""
}

// first acts on the state that the program reads at its beginning.
func (w *world) first(m mutant, p *cpu) {
	switch f := state.Arriving(w.state()); {
	case f == state.Pass:
		p.at = deliver
	case f == state.Translate:
		p.at = translate
	case f == state.Drop, p.pure: // bare acknowledgements that go up to a socket are steps of the socket
		*p = cpu{}
	case f == state.Try && !p.rst:
		p.at = claim
	default:
		p.at = note
	}
}

func (w *world) claim(p *cpu) {
	if w.state() != state.Armed {
		p.at = note
		return
	}
	w.change(state.Claimed, state.Ingress)
	p.at, p.claim = lookNotes, w.count
}

// look looks at the socket of side i.
func (w *world) look(m mutant, p *cpu, i int) {
	s, other := &w.socket[i], &w.socket[1-i]
	p.fit = p.fit && !s.closed && s.rcv == s.read
	p.fit = p.fit && (m.noNotes || p.notes[i] == 0 || p.notes[i] == s.rcv)
	if i == int(p.side) { // this socket has not seen the packet's acknowledgement yet
		p.fit = p.fit && s.rcv == p.unit && s.written == p.ack
	} else {
		p.fit = p.fit && s.written == s.acked
	}
	p.shift[i] = int8(other.written) - int8(s.rcv)
}

// again acts on the state that the program reads after it has noted its packet.
func (w *world) again(m mutant, p *cpu) {
	switch s := w.state(); {
	case s == state.Claimed && !m.noSpoil:
		p.at = spoil
	case s == state.Lane || s == state.Done:
		p.at = translate
	case s == state.Held:
		*p = cpu{}
	default:
		p.at = deliver
	}
}

// deliver gives the packet to the socket.
func (w *world) deliver(m mutant, p *cpu) (bad string) {
	s := &w.socket[p.side]
	ghost := w.state() == state.Lane
	switch {
	case p.rst:
		if ghost {
			bad = "a ghost has the endpoint's RST"
		}
		s.closed = true
	case s.absent && w.state() == state.User:
		bad = "the kernel resets an endpoint, for there is no socket"
	case m.noCatchUp && p.ack > s.written: // a socket drops acknowledgements of bytes that it has not sent (tcp_ack)
	case !s.closed && w.state() != state.Reset && s.rcv == p.unit:
		if ghost {
			bad = "a ghost has a byte"
		}
		s.rcv++
	}
	*p = cpu{}
	return bad
}

// translate gives the packet to the other endpoint.
func (w *world) translate(p *cpu) (bad string) {
	to := &w.endpoint[1-p.side]
	if !p.rst {
		w.lose(p)
		to.una = max(to.una, p.ack)
	}
	switch {
	case p.pure:
	case p.rst:
		to.reset, w.passed = true, true
		if w.state() == state.Lane {
			w.change(state.Done, state.Ingress)
		}
	case int8(p.unit)+w.shift[p.side] == int8(to.got):
		if p.unit != to.got {
			bad = "a byte has come to another place"
		}
		to.got++
	}
	*p = cpu{}
	return bad
}

// lose accounts for a translated packet, whether it arrives or not.
func (w *world) lose(p *cpu) {
	w.seen[p.side] = max(w.seen[p.side], p.ack)
	if !p.pure {
		w.carried[p.side] = max(w.carried[p.side], p.unit+1)
	}
}

// comeBack takes the session out of the lane: the lane stops, a grace period passes, and the sockets are
// restored at the acknowledgements that the lane has seen.
func (w world) comeBack(m mutant, quiet bool, do func(func(*world))) {
	quiet = quiet || m.noStop
	switch s := w.state(); {
	case s == state.Lane && w.user.returns < m.returns && !w.user.owns:
		do(func(n *world) {
			n.change(state.Held, state.Owner)
			n.user.returns++
			n.socket[0].absent, n.socket[1].absent = true, true
			n.wait()
		})
	case s == state.Held && w.passed && quiet:
		do(func(n *world) { n.change(state.Done, state.Owner) })
	case s == state.Done && w.passed: // the sockets are gone, and nobody goes on
		do(func(n *world) {
			n.socket[0].absent, n.socket[1].absent = true, true
			n.change(state.Reset, state.Owner)
		})
	case s == state.Held && quiet:
		do(func(n *world) {
			n.change(state.User, state.Owner)
			if !m.early {
				n.restore(m)
			}
		})
		if !m.ends {
			do(func(n *world) { n.change(state.Reset, state.Owner) })
		}
	case s == state.User && m.early && w.socket[0].absent:
		do(func(n *world) { n.restore(m) })
	}
}

// restore makes the sockets again.
func (w *world) restore(m mutant) {
	at := [2]uint8{w.seen[1], w.seen[0]} // of the units of side i
	if m.asCarried {
		at = w.carried
	}
	for i := range 2 {
		w.socket[i] = socket{rcv: at[i], read: at[i], written: at[1-i], acked: at[1-i]}
		w.note[i] = 0
	}
	w.user.owns, w.user.waiting, w.user.grace, w.leaves = true, false, true, 0
}

// adopt lets another process take the session over once the sockets of the dead process are closed. A session
// in state Held is put in the lane again, unless a reset has passed.
func (w world) adopt(m mutant, yield func(world, string)) {
	closed := w.socket[0].closed && w.socket[1].closed && !w.socket[0].finDue && !w.socket[1].finDue
	s := w.state()
	if !m.adopts || w.adopted || !closed || s != state.Lane && s != state.Held {
		return
	}
	w.killed, w.adopted = false, true
	w.user = user{registered: true, arms: w.user.arms, returns: w.user.returns}
	w.socket = [2]socket{{absent: true, closed: true}, {absent: true, closed: true}}
	switch {
	case s == state.Held && w.passed:
		w.change(state.Done, state.Owner)
	case s == state.Held:
		w.change(state.Lane, state.Owner)
		w.leaves-- // no packet made it leave
	}
	w.wait()
	yield(w, "")
}
