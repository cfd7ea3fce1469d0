package discovery

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// memory holds the latest answer to every question of a lookup. Each question is asked again
// when the time to live of its own answer is over.
type memory map[question]*answer

// An answer is the latest answer to a question.
type answer struct {
	finding            // of the latest reply
	expires  time.Time // time to ask again
	failures int       // attempts since the last reply
	err      error     // of the latest attempt
	round    int       // the latest round that needed it
}

// A staleRecords keeps the last good records of a name while servers deny them.
type staleRecords struct {
	records
	since time.Time // of the first denial; zero: there is none
	round int       // the latest round that needed it
}

// refresh asks the questions with expired answers, several at once, and records the results.
func (d *DNS) refresh(ctx context.Context, now time.Time, jitter float64, questions []question) {
	type result struct {
		q     question
		reply *dns.Msg
		found finding
		err   error
	}
	var due []*result
	for _, q := range questions {
		a := d.memory[q]
		if a == nil {
			a = &answer{}
			d.memory[q] = a
		}
		a.round = d.round
		if !a.expires.After(now) {
			due = append(due, &result{q: q})
		}
	}
	var group sync.WaitGroup
	var silence atomic.Bool
	var addresses atomic.Int64 // found so far
	tokens := make(chan struct{}, parallel)
	for _, r := range due {
		tokens <- struct{}{}
		group.Go(func() {
			defer func() { <-tokens }()
			switch {
			case silence.Load():
				r.err = errSilence
				return
			case addresses.Load() > MaxEndpoints:
				r.err = errTooMany
				return
			}
			r.reply, r.found, r.err = d.resolve(ctx, r.q)
			addresses.Add(int64(len(r.found.addresses)))
			if r.q.qtype != dns.TypeSRV {
				r.reply = nil
			}
			if timedOut(r.err) {
				silence.Store(true)
			}
		})
	}
	group.Wait()
	for _, r := range due {
		d.learn(r.q, r.found, r.err, now, jitter)
	}
	for _, r := range due {
		if r.err == nil && r.q.qtype == dns.TypeSRV {
			d.additional(r.reply, r.found, now, jitter)
		}
	}
}

// parallel is the largest number of concurrent questions of one source.
const parallel = 8

// errSilence ends a lookup if no server answers. Each of its other questions would wait as
// long.
var errSilence = errors.New("no server answers")

var errAliases = errors.New("too many aliases (CNAME)")

// resolve asks q, and follows its aliases.
func (d *DNS) resolve(ctx context.Context, q question) (*dns.Msg, finding, error) {
	ttl := forever
	for range maxAliases {
		reply, err := d.servers.ask(ctx, q)
		if err != nil {
			return nil, finding{}, err
		}
		f := read(reply, q)
		f.ttl = min(f.ttl, ttl)
		if f.next == "" {
			return reply, f, nil
		}
		q.name, ttl = f.next, f.ttl
	}
	return nil, finding{}, errAliases
}

// learn records the result of asking q. After a failure the last answer stays. An answer with
// every record left out is a failure. Any other answer is used as far as possible.
func (d *DNS) learn(q question, f finding, err error, now time.Time, jitter float64) {
	a := d.memory[q]
	if err == nil && f.empty() {
		err = f.left.err(q)
	}
	if a.err = err; err != nil {
		a.failures++
		a.expires = now.Add(d.cfg.backoff(a.failures, jitter))
		return
	}
	a.finding, a.failures = f, 0
	if err := f.left.err(q); err != nil {
		a.err = &partialError{err}
	}
	a.expires = now.Add(d.cfg.lifetime(f, jitter))
}

// additional records the addresses of targets in the additional section of an SRV reply.
func (d *DNS) additional(reply *dns.Msg, found finding, now time.Time, jitter float64) {
	extra := make(map[string][]dns.RR)
	for _, rr := range reply.Extra {
		name := dns.CanonicalName(rr.Header().Name)
		extra[name] = append(extra[name], rr)
	}
	for _, q := range targetsOf(found.services) {
		f := read(&dns.Msg{Answer: extra[q.name]}, q)
		if f.empty() {
			continue
		}
		if d.memory[q] == nil {
			d.memory[q] = &answer{}
		}
		d.memory[q].round = d.round
		d.learn(q, f, nil, now, jitter)
	}
}

// backoff returns the pause after a number of failures. It doubles each time from MinTTL to 30
// s or MaxTTL, and is between half of that and all.
func (c *DNSConfig) backoff(failures int, jitter float64) time.Duration {
	pause := max(c.MinTTL, 10*time.Millisecond)
	most := max(min(c.MaxTTL, 30*time.Second), pause)
	for range failures - 1 {
		if pause *= 2; pause >= most {
			pause = most
			break
		}
	}
	return pause/2 + time.Duration(jitter*float64(pause/2))
}

// lifetime returns how long f is used: the TTL of its records within the bounds, and up to a
// tenth more. Sources that asked at the same time therefore do not ask again at the same time.
// It is never more than MaxTTL.
func (c *DNSConfig) lifetime(f finding, jitter float64) time.Duration {
	most := c.MaxTTL
	if f.denied != "" && c.HoldNegative > 0 {
		most = max(min(most, c.HoldNegative), c.MinTTL)
	}
	ttl := min(max(f.ttl, c.MinTTL), most)
	spread := ttl / 10
	ttl = max(min(ttl, most-spread), c.MinTTL)
	return min(ttl+time.Duration(jitter*float64(spread)), most)
}

// forget drops the entries that this round did not need, and returns when the next question is
// due.
func (d *DNS) forget() (next time.Time) {
	for q, a := range d.memory {
		switch {
		case a.round != d.round:
			delete(d.memory, q)
		case next.IsZero() || a.expires.Before(next):
			next = a.expires
		}
	}
	for q, h := range d.holds {
		if h.round != d.round {
			delete(d.holds, q)
		}
	}
	return next
}
