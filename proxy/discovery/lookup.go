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
		d.tell(len(current), changed, next, err)
		if changed {
			update(slices.Clone(found))
		}
		if !pause(ctx, d.cfg.Clock, next.Sub(d.cfg.Clock.Now())) {
			return
		}
	}
}

// pause reports whether ctx still holds after it.
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

// tell notes how the lookup went, and logs when failing begins and ends, and that there are
// no endpoints.
func (d *DNS) tell(endpoints int, changed bool, next time.Time, err error) {
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
		text := "DNS fails: the endpoints that are known stay"
		switch {
		case partial(err):
			text = "DNS has records that can be no endpoint's: they are left out"
		case before.Changed.IsZero() && !changed:
			text = "DNS fails: no endpoints are known from it yet"
		}
		d.cfg.Log.Warn(text, "name", before.From, "endpoints", endpoints, "err", err)
	case err == nil && endpoints == 0 && (changed || before.Err != nil):
		d.cfg.Log.Warn("DNS says that the name has no endpoints", "name", before.From, "endpoints", 0, "why", d.denied())
	case err == nil && changed && before.Endpoints == 0 && !before.Changed.IsZero():
		d.cfg.Log.Info("DNS has endpoints of the name again", "name", before.From, "endpoints", endpoints)
	case err == nil && partial(before.Err):
		d.cfg.Log.Info("DNS has no records any more that are left out", "name", before.From, "endpoints", endpoints)
	case err == nil && before.Err != nil:
		d.cfg.Log.Info("DNS works again", "name", before.From, "endpoints", endpoints, "failures", before.Failures)
	}
}

// denied is what servers say of a name that has nothing.
func (d *DNS) denied() string {
	for _, q := range ask(d.qtypes, dns.CanonicalName(d.cfg.Name)) {
		if a := d.memory[q]; a != nil && a.denied != "" {
			return a.denied
		}
	}
	return noService
}

// lookup asks what is due and returns all endpoints by what is known then. They
// are not known before a server has answered.
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
	if err := errs.join(); n > MaxEndpoints || errors.Is(err, errTooMany) { // what was left out is not known
		return nil, false, fmt.Errorf("%w: %d is the most", errTooMany, MaxEndpoints)
	}
	return weighted(r.services, found), known && resolved, errs.join()
}

// maxTargets is how many targets SRV records may have, of each of which two questions are asked.
const maxTargets = 2000

// errTooMany is the error of a lookup that finds more than there may be.
var errTooMany = errors.New("too many endpoints")

// ask makes the questions for a name.
func ask(qtypes []uint16, name string) []question {
	var questions []question
	for _, t := range qtypes {
		questions = append(questions, question{name, t})
	}
	return questions
}

// targetsOf lists two questions for each target of services: A, then AAAA.
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

// noService is what is said of a name that has records, which lead to nothing.
const noService = "no such service"

// latest returns what is known of a name by the answers to questions about it: of
// two, one may be denied without being held, as AAAA often is. It is known once
// there was an answer, and none of the others may change that.
//
// The SRV target "." says that there is no such service (RFC 2782).
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
		*h = hold{records: r, round: d.round}
		return r, true, err
	case err != nil:
		return h.records, !h.empty(), err
	}
	if left := d.left(h, questions, now); left > 0 {
		return h.records, true, &denial{questions, why, left}
	}
	*h = hold{round: d.round}
	return r, true, nil
}

// held returns what is kept of the name that q, and what goes with it, is about.
func (d *DNS) held(q question) *hold {
	h := d.holds[q]
	if h == nil {
		h = &hold{}
		d.holds[q] = h
	}
	h.round = d.round
	return h
}

// left is for how long what h keeps is still kept though it is denied: until that
// has lasted for HoldNegative, and servers say so once more.
func (d *DNS) left(h *hold, questions []question, now time.Time) time.Duration {
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
