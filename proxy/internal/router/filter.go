package router

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/proxy/clienthello"
	"github.com/penstock/penstock/proxy/internal/filter"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/match"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// A Filter is asked about the clients of a route, before they get an endpoint.
type Filter struct {
	Of *filter.Filter
	// Snapshots are the upstreams to which the filter may send a client, by name.
	Snapshots map[string]*UpstreamSnapshot
	// Wait is how long a client waits for the filter, and as long again for its first bytes, if the filter
	// wants them.
	Wait time.Duration
}

// A FilterError is why a filter refuses a client. It matches [worker.ErrFiltered] if the filter has denied the client, and
// [worker.ErrFilterFailed] if the filter has not answered.
type FilterError struct {
	Filter string
	Reason string // the filter's, safe to be logged; empty: none
	Err    error  // why it has not answered; nil: it has denied
}

// Error implements error.
func (e *FilterError) Error() string {
	switch {
	case e.Err != nil:
		return e.Err.Error() + ": the client was refused, because on_error is deny"
	case e.Reason != "":
		return "filter " + e.Filter + ": denied: " + e.Reason
	}
	return "filter " + e.Filter + ": denied"
}

// Is implements the matching of errors.Is.
func (e *FilterError) Is(target error) bool {
	if e.Err != nil {
		return target == worker.ErrFilterFailed
	}
	return target == worker.ErrFiltered
}

// Unwrap returns the cause.
func (e *FilterError) Unwrap() error { return e.Err }

type filtering struct {
	asking   *Filter // nil: the route has no filter, or the filter is done
	passed   bool    // all filters of the client's routes are done
	asked    int     // index of the filter's route; match.None for the default
	call     *filter.Call
	need     int   // number of first bytes that the filter wants
	looksBy  int64 // clock until which first bytes are awaited
	answerBy int64 // clock until which the answer is awaited
}

func (s *Search) filterBy(f *Filter, route int, now int64) {
	s.filtering = filtering{asking: f, asked: route, need: min(1, f.Of.Preread()), looksBy: now + int64(f.Wait)}
	s.client.LookedEnded = false
	s.stage = filtered
}

// askFilter waits for the first bytes that the filter wants, and for its answer.
func (s *Search) askFilter(now int64) (worker.Step, bool) {
	f := s.asking
	first, ended := s.client.Looked, s.client.LookedEnded
	s.client.Looked = nil
	if s.call == nil {
		if len(first) < s.need && !ended {
			return worker.Step{
				Action: worker.Look, Need: s.need, Most: f.Of.Preread(), Timeout: max(time.Duration(s.looksBy-now), time.Millisecond),
			}, true
		}
		of, whole, err := s.described(first, ended)
		switch {
		case err != nil:
			s.unasked(&FilterError{Filter: f.Of.Name(), Err: fmt.Errorf("filter %s did not run: %w", f.Of.Name(), err)})
			return worker.Step{}, false
		case !whole:
			return worker.Step{}, false // need has grown
		}
		s.call, s.answerBy = &filter.Call{Of: of}, now+int64(f.Wait)
		if !f.Of.Ask(s.call, s.waker().Wake) {
			s.unasked(fmt.Errorf("filter %s: %w", f.Of.Name(), worker.ErrFilterOverload))
			return worker.Step{}, false
		}
	}
	answer, ok := s.call.Answer()
	switch {
	case ok:
		s.obey(&answer, now)
		return worker.Step{}, false
	case s.answerBy <= now:
		s.call.Cancel()
		f.Of.Overloaded()
		s.unasked(fmt.Errorf("filter %s: %w", f.Of.Name(), worker.ErrFilterOverload))
		return worker.Step{}, false
	}
	return worker.Step{Action: worker.Park, Timeout: time.Duration(s.answerBy - now), Unqueued: true}, true
}

// unasked continues, as on_error says, with a client about which the filter was not asked, or not in time.
func (s *Search) unasked(cause error) {
	f := s.asking.Of
	if s.call, s.asking = nil, nil; f.OnError() != filter.Allow {
		s.giveUp(cause)
		return
	}
	s.stage, s.passed = routing, true
}

// described returns the client as its filter sees it. whole is false if the first bytes are an incomplete ClientHello of
// which the filter may see more. described fails if they begin as TLS but have no readable ClientHello, because then it is
// unknown which name the endpoint will read.
func (s *Search) described(first []byte, ended bool) (of filter.Connection, whole bool, err error) {
	c := s.client
	of = s.listener.described(c, s.snapshot, first)
	of.Ended = ended
	if len(first) == 0 || of.ServerName != "" || len(of.ALPN) > 0 || c.First.Is(firstbytes.TLS) == firstbytes.Yes {
		return of, true, c.First.HelloErr
	}
	need, err := clienthello.Length(first)
	if err == nil && need > len(first) {
		s.need, of.Unread = need, true
		return of, need > s.asking.Of.Preread() || ended, nil
	}
	hello, err := clienthello.Parse(first)
	if errors.Is(err, clienthello.ErrNotTLS) {
		err = nil
	}
	of.ServerName, of.ALPN = hello.ServerName, hello.ALPN
	return of, true, err
}

// described returns what filters see of a client on its way to an upstream, with its first bytes.
func (l *Listener) described(c *worker.Client, snap *UpstreamSnapshot, first []byte) filter.Connection {
	of := filter.Connection{
		Source: c.Source().AddrPort(), Destination: l.destination(c), Session: c.ID.String(), Listener: l.cfg.Name,
		ServerName: c.Hello.ServerName, ALPN: c.Hello.ALPN, TLVs: bytes.Clone(c.Header.TLVs), First: bytes.Clone(first),
	}
	if snap != nil {
		of.Upstream = snap.upstream.name
	}
	return of
}

func (s *Search) obey(a *filter.Answer, now int64) {
	f, call := s.asking, s.call
	s.call, s.asking = nil, nil
	s.client.Record.Tag(a.Tags)
	s.stage = routing
	switch a.Verdict {
	case filter.Deny:
		s.giveUp(&FilterError{Filter: f.Of.Name(), Reason: a.Reason, Err: a.Err})
	case filter.More:
		s.asking, s.stage = f, filtered
		s.need = len(call.Of.First) + 1
	case filter.Next:
		s.gate = nil
		s.nextRoute(f.Wait, now)
	case filter.Route:
		s.snapshot, s.passed = f.Snapshots[a.Upstream], true
	default:
		s.passed = true
	}
}

// nextRoute continues with the route after the filter's. It waits for first bytes that decide this route.
func (s *Search) nextRoute(wait time.Duration, now int64) {
	var to way
	if s.asked != match.None {
		var err error
		if to, err = s.listener.wayAfter(s.client, s.asked); errors.Is(err, match.ErrUndecided) {
			s.looksBy, s.need, s.stage = now+int64(wait), 1, lookingOn
			s.client.LookedEnded = false
			return
		} else if err != nil {
			s.giveUp(err)
			return
		}
	}
	s.goOn(to, now)
}

// lookOn looks at more of a client's first bytes than its first route needed, because routes after the filter's depend on
// them.
func (s *Search) lookOn(now int64) (worker.Step, bool) {
	first, ended := s.client.Looked, s.client.LookedEnded
	s.client.Looked = nil
	if len(first) >= s.need || ended {
		need, err := s.learn(first, ended)
		if err != nil {
			return worker.Step{}, s.giveUp(err)
		}
		to, err := s.listener.wayAfter(s.client, s.asked)
		switch {
		case err == nil && (need <= len(first) || s.listener.recogniser() != nil):
			s.goOn(to, now)
			return worker.Step{}, false
		case err != nil && !errors.Is(err, match.ErrUndecided) || need <= len(first) || ended:
			return worker.Step{}, s.giveUp(cmp.Or(err, worker.ErrPrereadEnded))
		}
		s.need = need
	}
	most := clienthello.Max
	if r := s.listener.recogniser(); r != nil {
		most = r.Max()
	}
	return worker.Step{Action: worker.Look, Need: s.need, Most: most, Timeout: max(time.Duration(s.looksBy-now), time.Millisecond)}, true
}

func (s *Search) goOn(to way, now int64) {
	s.stage = routing
	s.way, s.passed = to, true
	if to.filter != nil {
		if s.asked == match.None { // the first filter was not asked yet
			s.gate = to.filter.Of
		}
		s.filterBy(to.filter, to.route, now)
	}
}

func (s *Search) leaveFilter() {
	if s.call != nil {
		s.call.Cancel()
	}
	s.filtering = filtering{}
}

// A Rewrite rewrites the bytes of one side of a route's sessions.
type Rewrite struct {
	Side   relay.Side // the side that sends the bytes
	Module *filter.Rewriter
	Hold   time.Duration // see [relay.Socket]
}

// Rewritten implements [worker.Search].
func (s *Search) Rewritten() relay.Side {
	if s.rewrite == nil {
		return relay.SideNone
	}
	return s.rewrite.Side
}

// Rewrite implements [worker.Search].
func (s *Search) Rewrite(on *relay.Socket) {
	s.listener.state.Rewritten.Add(1)
	of, _, _ := s.described(nil, false)
	on.Transform, on.Hold = s.rewrite.Module.NewStream(&of), s.rewrite.Hold
}
