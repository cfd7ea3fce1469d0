package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"
)

// Watch implements [Source].
func (d *DNS) Watch(ctx context.Context, update func([]Endpoint)) {
	var current []Endpoint
	for first := true; ; {
		found, known, err := d.lookup(ctx)
		if err != nil {
			err = fmt.Errorf("discovery: dns: %w", err)
		}
		if ctx.Err() != nil {
			return
		}
		changed := known && (first || !slices.Equal(found, current))
		if changed {
			first, current = false, found
		}
		next := d.forget()
		d.record(len(current), changed, next, err)
		if changed {
			update(slices.Clone(found))
		}
		if !pause(ctx, d.cfg.Clock, next.Sub(d.cfg.Clock.Now())) {
			return
		}
	}
}

// pause waits and reports whether ctx is still valid.
func pause(ctx context.Context, c Clock, d time.Duration) bool {
	tick, stop := c.After(d)
	defer stop()
	select {
	case <-tick:
		return true
	case <-ctx.Done():
		return false
	}
}

// record records the result of a lookup. It logs the first failure, the first success after it,
// and that there are no endpoints.
func (d *DNS) record(endpoints int, changed bool, next time.Time, err error) {
	before := d.Status()
	now := d.cfg.Clock.Now()
	d.note(func(s *Status) {
		s.Next, s.Endpoints, s.Err = next, endpoints, err
		if changed {
			s.Changed = now
		}
		if err == nil {
			s.Confirmed, s.Failures, s.Stale = now, 0, false
			return
		}
		s.Failures++
		s.Stale = !s.Changed.IsZero()
	})
	switch {
	case err != nil && (before.Err == nil || partial(err) != partial(before.Err)):
		text := "DNS lookup failed, keeping current endpoints"
		switch {
		case partial(err):
			text = "DNS has records that can be no endpoint's: they are left out"
		case before.Changed.IsZero() && !changed:
			text = "DNS lookup failed, no endpoints known yet"
		}
		d.cfg.Log.Warn(text, "name", before.From, "endpoints", endpoints, "error", err)
	case err == nil && endpoints == 0 && (changed || before.Err != nil):
		d.cfg.Log.Warn("DNS says that the name has no endpoints", "name", before.From, "endpoints", 0, "cause", d.denied())
	case err == nil && changed && before.Endpoints == 0 && !before.Changed.IsZero():
		d.cfg.Log.Info("DNS has endpoints of the name again", "name", before.From, "endpoints", endpoints)
	case err == nil && partial(before.Err):
		d.cfg.Log.Info("DNS has no records any more that are left out", "name", before.From, "endpoints", endpoints)
	case err == nil && before.Err != nil:
		d.cfg.Log.Info("DNS works again", "name", before.From, "endpoints", endpoints, "failures", before.Failures)
	}
}

// denied returns the servers' reason that the name has no endpoints.
func (d *DNS) denied() string {
	for _, q := range ask(d.qtypes, dns.CanonicalName(d.cfg.Name)) {
		if a := d.memory[q]; a != nil && a.denied != "" {
			return a.denied
		}
	}
	return noService
}

// lookup asks the questions that are due and returns all endpoints known then. known is false
// before a server has answered.
func (d *DNS) lookup(ctx context.Context) (endpoints []Endpoint, known bool, err error) {
	d.round++
	now, jitter := d.cfg.Clock.Now(), d.cfg.Random()
	questions := ask(d.qtypes, dns.CanonicalName(d.cfg.Name))
	d.refresh(ctx, now, jitter, questions)
	r, known, err := d.latest(questions, now)
	if d.cfg.Type != "SRV" {
		return plain(r.addresses, uint16(d.cfg.Port)), known, err
	}
	targets := targetsOf(r.services)
	if len(targets) > 2*maxTargets {
		return nil, false, fmt.Errorf("%w: %d targets, and %d is the most", errTooMany, len(targets)/2, maxTargets)
	}
	d.refresh(ctx, now, jitter, targets)
	found := map[string][]netip.Addr{}
	errs := failures{err}
	resolved := len(targets) == 0
	for pair := range slices.Chunk(targets, 2) {
		of, known, err := d.latest(pair, now)
		found[pair[0].name] = of.addresses
		errs = append(errs, err)
		resolved = resolved || known
	}
	n := 0
	for _, s := range r.services {
		n += len(found[s.target])
	}
	if err := errs.join(); n > MaxEndpoints || errors.Is(err, errTooMany) { // the left out ones are unknown
		return nil, false, fmt.Errorf("%w: %d is the most", errTooMany, MaxEndpoints)
	}
	return weighted(r.services, found), known && resolved, errs.join()
}

// maxTargets is the largest number of targets of SRV records. Each takes two questions.
const maxTargets = 2000

// errTooMany is the error of a lookup that finds more than allowed.
var errTooMany = errors.New("too many endpoints")

// ask returns the questions for a name.
func ask(qtypes []uint16, name string) []question {
	var questions []question
	for _, t := range qtypes {
		questions = append(questions, question{name, t})
	}
	return questions
}

// targetsOf returns two questions for each target of services: A, then AAAA.
func targetsOf(services []service) (questions []question) {
	seen := map[string]bool{}
	for _, s := range services {
		if !seen[s.target] {
			seen[s.target] = true
			questions = append(questions, ask(questionTypes["A+AAAA"], s.target)...)
		}
	}
	return questions
}

// noService is the reason for a name with records that lead to nothing.
const noService = "no such service"

// latest returns the known records of a name from the answers to its questions. One of two may
// be denied without a hold, as AAAA often is. known is true once there is an answer that the
// missing ones cannot change.
//
// The SRV target "." means that there is no such service (RFC 2782).
func (d *DNS) latest(questions []question, now time.Time) (r records, known bool, err error) {
	why := noService
	var errs failures
	for _, q := range questions {
		a := d.memory[q]
		r.addresses = append(r.addresses, a.addresses...)
		r.services = append(r.services, a.services...)
		errs = append(errs, a.err)
		if a.denied != "" {
			why = a.denied
		}
	}
	r.services = slices.DeleteFunc(r.services, func(s service) bool { return s.target == "." })
	h := d.held(questions[0])
	err = errs.join()
	switch {
	case !r.empty():
		*h = staleRecords{records: r, round: d.round}
		return r, true, err
	case err != nil:
		return h.records, !h.empty(), err
	}
	if left := d.left(h, questions, now); left > 0 {
		return h.records, true, &negativeAnswer{questions, why, left}
	}
	*h = staleRecords{round: d.round}
	return r, true, nil
}

// held returns the kept records for q and the other questions about its name.
func (d *DNS) held(q question) *staleRecords {
	h := d.holds[q]
	if h == nil {
		h = &staleRecords{}
		d.holds[q] = h
	}
	h.round = d.round
	return h
}

// left returns how long the records of h are still kept although they are denied. They are
// dropped once the denial has lasted for HoldNegative and servers confirm it once more.
func (d *DNS) left(h *staleRecords, questions []question, now time.Time) time.Duration {
	if h.empty() || d.cfg.HoldNegative < 0 {
		return 0
	}
	if h.since.IsZero() {
		h.since = now
	}
	end := h.since.Add(d.cfg.HoldNegative)
	for _, q := range questions {
		if a := d.memory[q]; a.expires.After(end) && end.After(now) {
			a.expires = end
		}
	}
	return end.Sub(now)
}
