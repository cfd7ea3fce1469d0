package admin

import (
	"slices"
	"strconv"
	"time"
)

// maxNumbers is for how many endpoints an event has numbers. Of more, each has its turn: the states and texts of
// endpoints are always in the next event.
const maxNumbers = 1000

// An endpointRow is the part of an [Endpoint] that seldom changes.
type endpointRow struct {
	endpointFacts
	// ByHand are the changes of it that were made by hand: weight 5, added.
	ByHand []string `json:"by_hand,omitempty"`
}

// endpointFacts are those of an endpointRow that can be compared.
type endpointFacts struct {
	Upstream string `json:"upstream"`         // its name
	Name     string `json:"name"`             // its address if it has no name
	Address  string `json:"address"`          // host:port, or unix:/path
	Zone     string `json:"zone,omitempty"`   // where it is; left out: not known
	Weight   int    `json:"weight"`           // its share of clients beside others; 0: it gets none
	Backup   bool   `json:"backup,omitempty"` // it gets clients only if no other endpoint can
	Max      int64  `json:"most,omitempty"`   // limit of sessions; left out: no limit
	State    State  `json:"state"`            // up, down, standby, ejected, draining, maint or removed
	// Until is the end of an ejection or of the breaker's open state, or the time at which sessions that drain are
	// reset. Left out: there is no such time.
	Until   time.Time `json:"until,omitzero"`
	Breaker string    `json:"breaker,omitempty"` // open, half-open; left out: closed, or none
	Opened  int64     `json:"opened,omitempty"`  // how many times the breaker has opened
	// BreakerWhy is the reason that the breaker is not closed. BreakerUntil is the end of its open state.
	BreakerWhy   string    `json:"breaker_why,omitempty"`
	BreakerUntil time.Time `json:"breaker_until,omitzero"`
	// Level is ok, warning (it may get clients, and something is wrong), off (taken out by hand or by a reload, or a standby) or down.
	Level string `json:"level"`
	// Why is the reason for a level other than ok, in words.
	Why string `json:"why,omitempty"`
}

// An endpointNumbers is the numbers of an [Endpoint] that change with its clients: active, total, failures,
// connects.made, connects.sum_us, bytes from clients spliced and copied, then those to clients, answers.made,
// answers.sum_us, and of limited_seconds the sum, and that of the endpoint and the way to it, in milliseconds.
type endpointNumbers [13]int64

// equal reports whether nothing has changed.
func (r *endpointRow) equal(o *endpointRow) bool {
	return r.endpointFacts == o.endpointFacts && slices.Equal(r.ByHand, o.ByHand)
}

func rowOf(upstream string, e *Endpoint) endpointRow {
	r := endpointRow{ByHand: e.ByHand, endpointFacts: endpointFacts{
		Upstream: upstream, Name: e.Name, Address: e.Address, Zone: e.Zone, Weight: e.Weight, Backup: e.Backup, Max: e.Max,
		State: e.State, Until: e.Until, Breaker: e.Breaker, Opened: e.Opened, BreakerWhy: e.BreakerWhy, BreakerUntil: e.BreakerUntil,
		Level: "ok",
	}}
	switch {
	case e.State == Down, e.State == Ejected:
		r.Level, r.Why = "down", e.cause(e.Why)
	case e.State == Up && e.Breaker == "open":
		r.Level, r.Why, r.Until = "down", e.cause(e.BreakerWhy), e.BreakerUntil
	case e.State != Up, e.Weight == 0:
		r.Level, r.Why = "off", e.Why
	default:
		r.Why = e.Reason()
		r.watched(e)
	}
	return r
}

// cause returns a reason, or the last failure where there is none.
func (e *Endpoint) cause(why string) string {
	if why == "" && e.LastFailure != nil {
		return e.LastFailure.Cause
	}
	return why
}

// watched sets the level of an endpoint that may get clients.
func (r *endpointRow) watched(e *Endpoint) {
	switch {
	case r.Why != "":
	case e.Failing != nil:
		r.Why = "sessions end without an answer"
	case e.Silence != nil:
		r.Why = "answers no client: " + e.Silence.Proof
	case e.Connecting != nil:
		r.Why = "clients wait for a connection to it"
	default:
		return
	}
	r.Level = "warning"
}

func numbersOf(e *Endpoint) endpointNumbers {
	in, out := &e.Bytes.ClientToEndpoint, &e.Bytes.EndpointToClient
	n := endpointNumbers{e.Active, e.Total, e.Failures, e.Connects.Made, e.Connects.SumUs, in.Spliced, in.Copied, out.Spliced, out.Copied}
	if e.Answers != nil {
		n[9], n[10] = e.Answers.Made, e.Answers.SumUs
	}
	lost, all := e.Waited()
	n[11], n[12] = all.Milliseconds(), lost.Milliseconds()
	return n
}

// numbers is a JSON array of whole numbers without its brackets.
type numbers []byte

func (n numbers) add(p *placed) numbers {
	if len(n) > 0 {
		n = append(n, ',')
	}
	n = strconv.AppendInt(n, int64(p.number), 10)
	for _, v := range p.endpointNumbers {
		n = append(n, ',')
		n = strconv.AppendInt(n, v, 10)
	}
	return n
}

// MarshalJSON implements [json.Marshaler].
func (n numbers) MarshalJSON() ([]byte, error) {
	return append(append([]byte("["), n...), ']'), nil
}

// updateEndpoints adds the changes of endpoints to an event.
func (s *scene) updateEndpoints(st *Status, e *event) {
	var list []*placed
	var now []*Endpoint
	for i := range st.Upstreams {
		u := &st.Upstreams[i]
		for j := range u.Endpoints {
			p, added := s.place(u.Name, &u.Endpoints[j])
			if row := rowOf(u.Name, &u.Endpoints[j]); added || !row.equal(&p.endpointRow) {
				p.endpointRow = row
				e.Endpoints[strconv.Itoa(p.number)] = &p.endpointRow
			}
			if added {
				p.endpointNumbers = numbersOf(&u.Endpoints[j])
				e.Numbers = e.Numbers.add(p)
			}
			list, now = append(list, p), append(now, &u.Endpoints[j])
		}
	}
	s.updateNumbers(list, now, e)
	for key, p := range s.order {
		if p.id != s.id {
			e.Left = append(e.Left, p.number)
			delete(s.order, key)
		}
	}
}

// updateNumbers adds the numbers that have changed to an event, of maxNumbers endpoints at most.
func (s *scene) updateNumbers(list []*placed, now []*Endpoint, e *event) {
	if s.turn >= len(list) {
		s.turn = 0
	}
	first, changed := s.turn, 0
	for k := range list {
		i := (first + k) % len(list)
		n := numbersOf(now[i])
		if n == list[i].endpointNumbers {
			continue
		}
		list[i].endpointNumbers = n
		e.Numbers = e.Numbers.add(list[i])
		if changed++; changed == maxNumbers {
			s.turn = (i + 1) % len(list)
			return
		}
	}
}

// place returns the place of an endpoint, and whether it is new. One that drains after its removal may have the name
// and the address of another, so it is counted.
func (s *scene) place(upstream string, e *Endpoint) (p *placed, added bool) {
	for n := 0; ; n++ {
		key := upstream + "\x00" + e.Name + "\x00" + e.Address + "\x00" + strconv.Itoa(n)
		switch p = s.order[key]; {
		case p == nil:
			s.last++
			p = &placed{number: s.last, id: s.id}
			s.order[key] = p
			return p, true
		case p.id != s.id:
			p.id = s.id
			return p, false
		}
	}
}
