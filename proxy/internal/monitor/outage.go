// Package monitor logs failures while a load balancer serves: upstreams without a usable endpoint, and counters
// that should not rise, such as the number of refused clients.
//
// It has no goroutines and no clock. The owner calls Look about once a second, under one lock, with the time of
// its own clock. The number of lines is limited, however many upstreams fail, and however often.
package monitor

import (
	"log/slog"
	"time"
)

// A Condition of an upstream says whether it can take clients.
type Condition uint8

const (
	// Usable means that the upstream has an endpoint that takes clients.
	Usable Condition = iota
	// Full means that every usable endpoint has as many sessions as it may have.
	Full
	// Unusable means that no endpoint is usable, for any reason.
	Unusable
)

// An Upstream is the state of an upstream, as [Outages.Look] gets it.
type Upstream struct {
	Key       any // comparable; the same in each call of Look
	Name      string
	Condition Condition
	Refused   int64 // refused clients until now
	Held      int64 // clients that had to wait for an endpoint until now
	Fallbacks int64 // clients that went to the fallback until now
	Unserved  int64 // ended sessions that got no byte from their endpoint, until now
}

// An Outage is a time in which an upstream has no endpoint that takes clients.
type Outage struct {
	Since                    int64 // time of the clock, in nanoseconds
	Condition                Condition
	Refused, Held, Fallbacks int64 // clients since then
	Unserved                 int64 // sessions that have ended since then without a byte from their endpoint
}

// The times of an outage.
const (
	// fullFor is how long an upstream must be full before that is an outage, because a limit may be reached for a
	// moment.
	fullFor = 5 * time.Second
	// An outage ends when the upstream has been usable for quiet. If the next outage begins within forgetAfter,
	// the upstream must then be usable for twice as long, up to mostQuiet.
	quiet       = time.Second
	mostQuiet   = 32 * time.Second
	forgetAfter = time.Minute
)

// mostLines is how many lines of a kind one call of Look logs. One more line counts the others.
const mostLines = 20

// Outages logs when an upstream has no endpoint that takes clients, and when it has one again.
type Outages struct {
	log   *slog.Logger
	known map[any]*condition
	look  uint64
}

type condition struct {
	Upstream        // as of the last call of Look
	seen     uint64 // number of that call
	before   counts // as of the call before that

	kind      Condition // of the present outage; Usable: there is none
	logged    bool
	since     int64
	began     counts // as of the call before the outage
	again     int64  // when the upstream last stopped taking clients
	fresh     counts // as of the call before again
	back      int64  // when it was found to be usable again; 0: it was not
	until     counts // as of back
	gone      bool   // the upstream was removed at back, and not usable again
	lapses    int    // how often it failed again before the end was logged
	quiet     time.Duration
	endedAt   int64     // when the last outage was logged as over; 0: none was
	endedKind Condition // kind of that outage
}

type counts struct{ refused, held, fallbacks, unserved int64 }

func (u *Upstream) counts() counts { return counts{u.Refused, u.Held, u.Fallbacks, u.Unserved} }

// since returns the increase since before.
func (c counts) since(before counts) counts {
	return counts{c.refused - before.refused, c.held - before.held, c.fallbacks - before.fallbacks, c.unserved - before.unserved}
}

// NewOutages returns Outages without upstreams.
func NewOutages(log *slog.Logger) *Outages {
	return &Outages{log: log, known: make(map[any]*condition)}
}

// Look takes the present upstreams. now is the time of the clock. explain returns why the endpoints of an upstream
// take no clients. It is called when an outage of the upstream is logged.
func (o *Outages) Look(now int64, upstreams []Upstream, explain func(key any) string) {
	o.look++
	var begun, ended []*condition
	for i := range upstreams {
		u := &upstreams[i]
		c := o.known[u.Key]
		if c == nil {
			c = &condition{Upstream: *u}
			o.known[u.Key] = c
		}
		c.before, c.Upstream, c.seen = c.counts(), *u, o.look
		switch c.step(now) {
		case outageBegins:
			begun = append(begun, c)
		case outageEnds:
			ended = append(ended, c)
		}
	}
	for key, c := range o.known {
		if c.seen == o.look {
			continue
		}
		delete(o.known, key)
		if c.logged && c.kind != Usable { // its end is not logged yet
			if c.back == 0 {
				c.gone, c.back, c.until = true, now, c.counts()
			}
			ended = append(ended, c)
		}
	}
	o.logBegun(begun, explain)
	o.logEnded(ended)
}

// Of returns the outage of an upstream at a time, even before Look has got it, with its cost until now. If the upstream was
// usable for a short time, the outage counts from when that time ended.
func (o *Outages) Of(at int64, now *Upstream) (Outage, bool) {
	if now.Condition == Usable {
		return Outage{}, false
	}
	since, before := at, now.counts()
	switch c := o.known[now.Key]; {
	case c == nil:
	case c.kind < now.Condition || c.back != 0: // Look has not got this condition yet
		before = c.counts()
	default:
		since, before = c.again, c.fresh
	}
	cost := now.counts().since(before)
	return Outage{since, now.Condition, cost.refused, cost.held, cost.fallbacks, cost.unserved}, true
}

// A turn is the result of Look for one upstream.
type turn uint8

const (
	noTurn turn = iota
	outageBegins
	outageEnds
)

// step takes the condition that Look has got.
func (c *condition) step(now int64) turn {
	switch at := c.Condition; {
	case c.kind == Usable && at == Usable:
		return noTurn
	case c.kind == Usable, c.kind == Full && at == Unusable:
		c.begin(at, now)
	case at < c.kind:
		return c.recover(now)
	case c.back != 0:
		c.again, c.fresh, c.back = now, c.before, 0
		c.lapses++
	}
	if c.logged || c.kind == Full && now-c.since < int64(fullFor) {
		return noTurn
	}
	c.logged = true
	return outageBegins
}

// begin begins an outage, or turns its kind from Full to Unusable.
func (c *condition) begin(kind Condition, now int64) {
	c.kind, c.logged, c.since, c.began, c.back, c.lapses = kind, false, now, c.before, 0, 0
	c.again, c.fresh = now, c.before
	if c.endedAt != 0 && now-c.endedAt < int64(forgetAfter) {
		c.quiet = min(2*c.quiet, mostQuiet)
	} else {
		c.quiet = quiet
	}
}

// recover notes that the upstream is usable again. The end of the outage is logged when the upstream has been
// usable for long enough.
func (c *condition) recover(now int64) turn {
	if c.back == 0 {
		c.back, c.until = now, c.counts()
	}
	if !c.logged {
		c.kind = Usable
		return noTurn
	}
	if now-c.back < int64(c.quiet) {
		return noTurn
	}
	c.endedKind, c.kind, c.endedAt = c.kind, Usable, now
	return outageEnds
}

func (o *Outages) logBegun(begun []*condition, explain func(key any) string) {
	for _, c := range begun[:min(len(begun), mostLines)] {
		text := "an upstream has no usable endpoint"
		if c.kind == Full {
			text = "every usable endpoint of an upstream is at its limit"
		}
		o.log.Warn(text, "upstream", c.Name, "cause", explain(c.Key))
	}
	if more := len(begun) - mostLines; more > 0 {
		o.log.Warn("more upstreams have no usable endpoint", "upstreams", more)
	}
}

func (o *Outages) logEnded(ended []*condition) {
	for _, c := range ended[:min(len(ended), mostLines)] {
		text := "an upstream has a usable endpoint again"
		switch {
		case c.gone:
			text = "an upstream that could take no clients was removed"
		case c.Condition == Full:
			text = "an upstream has usable endpoints again, but they are at their limit"
		case c.endedKind == Full:
			text = "an upstream is no longer at its limit"
		}
		cost := c.until.since(c.began)
		attrs := []any{
			"upstream", c.Name, "duration", time.Duration(c.back - c.since).Round(time.Second).String(),
			"refused", cost.refused, "held", cost.held, "fallbacks", cost.fallbacks,
		}
		if cost.unserved > 0 {
			attrs = append(attrs, "unserved", cost.unserved)
		}
		if c.lapses > 0 {
			attrs = append(attrs, "recurred", c.lapses)
		}
		o.log.Info(text, attrs...)
	}
	if more := len(ended) - mostLines; more > 0 {
		o.log.Info("more upstreams have a usable endpoint again", "upstreams", more)
	}
}

// recent counts the events of about the last minute, in slots of ten seconds.
type recent struct {
	slots [6]int64
	at    int64 // number of the last slot
}

const slotTime = int64(time.Minute) / 6

func (r *recent) add(now, n int64) {
	r.move(now)
	r.slots[r.at%int64(len(r.slots))] += n
}

func (r *recent) sum(now int64) (n int64) {
	r.move(now)
	for _, k := range r.slots {
		n += k
	}
	return n
}

// move empties the slots that are past their time.
func (r *recent) move(now int64) {
	at := now / slotTime
	for range min(max(at-r.at, 0), int64(len(r.slots))) {
		r.at++
		r.slots[r.at%int64(len(r.slots))] = 0
	}
	r.at = max(at, r.at)
}
