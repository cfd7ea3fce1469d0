package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"github.com/penstock/penstock/proxy/sockopt"
)

// Watch implements [Source].
func (d *DNS) Watch(ctx context.Context, update func([]Endpoint)) {
	current := d.cfg.Known
	for first := true; ; {
		found, known, err := d.lookup(ctx)
		if err != nil {
			err = fmt.Errorf("discovery: dns: %w", err)
		}
		if ctx.Err() != nil {
			return
		}
		changed := known && (first && err == nil || !slices.Equal(found, current)) // the first good answer confirms what is known
		if changed {
			first, current = false, found
		}
		next := d.forget()
		if soonest := d.cfg.Clock.Now().Add(time.Duration(d.asked.Swap(0)) * time.Second / perSecond); next.Before(soonest) {
			next = soonest
		}
		d.record(len(current), changed, next, err)
		if changed {
			update(slices.Clone(found))
		}
		if !pause(ctx, d.cfg.Clock, next.Sub(d.cfg.Clock.Now())) {
			return
		}
	}
}

// perSecond is how many questions of one source there are in a second, in the mean: 2,000 targets of an SRV name with
// addresses that live for no time are looked up every 8 s, not every min_ttl.
const perSecond = 500

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
	denied := ""
	if err == nil && endpoints == 0 {
		denied = d.denied()
	}
	d.note(func(s *Status) {
		s.Next, s.Endpoints, s.Err, s.Denied = next, endpoints, err, denied
		if changed {
			s.Changed = now
		}
		if err == nil || d.answered {
			s.Confirmed = now
		}
		if err == nil {
			s.Failures, s.Stale = 0, false
			return
		}
		if d.failed {
			s.Failures++
		}
		s.Stale = !s.Changed.IsZero()
	})
	switch {
	case err != nil && before.Err == nil:
		text := "the DNS lookup failed, and the current endpoints stay"
		switch {
		case changed || d.partial():
			text = "some DNS lookups failed, and the answers to the others are used"
		case before.Changed.IsZero():
			text = "the DNS lookup failed, and no endpoints are known yet"
		}
		d.cfg.Log.Warn(text, "name", before.From, "endpoints", endpoints, "error", err)
	case err == nil && endpoints == 0 && (changed || before.Err != nil):
		d.cfg.Log.Warn("DNS says that the name has no endpoints", "name", before.From, "endpoints", 0, "cause", denied)
	case err == nil && changed && before.Endpoints == 0 && !before.Changed.IsZero():
		d.cfg.Log.Info("DNS has endpoints for the name again", "name", before.From, "endpoints", endpoints)
	case err == nil && before.Err != nil:
		d.cfg.Log.Info("DNS works again", "name", before.From, "endpoints", endpoints, "failures", before.Failures)
	}
}

// partial reports whether a question about addresses has an answer.
func (d *DNS) partial() bool {
	for q, a := range d.memory {
		if q.qtype != dns.TypeSRV && a.err == nil && !a.empty() {
			return true
		}
	}
	return false
}

// denied says why there are no endpoints: the denial of the name or, with its name, of the first target of its SRV records.
func (d *DNS) denied() string {
	for _, q := range ask(d.qtypes, dns.CanonicalName(d.cfg.Name)) {
		a := d.memory[q]
		if a.denied != "" {
			return a.denied
		}
		for _, target := range targetsOf(a.services) {
			if of := d.memory[target]; of != nil && of.denied != "" {
				return strings.TrimSuffix(target.name, ".") + ": " + of.denied
			}
		}
	}
	return noService
}

// lookup asks the questions that are due and returns all endpoints known then. known is false
// before a server has answered, and if no record of the answers can be an endpoint.
func (d *DNS) lookup(ctx context.Context) (endpoints []Endpoint, known bool, err error) {
	d.round++
	d.answered, d.failed = false, false
	now, jitter := d.cfg.Clock.Now(), d.cfg.Random()
	questions := ask(d.qtypes, dns.CanonicalName(d.cfg.Name))
	d.refresh(ctx, now, jitter, questions)
	r, known, err := d.latest(questions, now)
	if d.cfg.Type != "SRV" {
		return d.usable(plain(r.addresses, uint16(d.cfg.Port)), r.refused, known, err)
	}
	targets := targetsOf(r.services)
	if len(targets) > 2*maxTargets {
		d.failed = true
		return nil, false, fmt.Errorf("%w: %d targets, more than %d", errTooMany, len(targets)/2, maxTargets)
	}
	d.refresh(ctx, now, jitter, targets)
	found := map[string][]netip.Addr{}
	errs, refused := failures{err}, slices.Clone(r.refused)
	resolved := len(targets) == 0
	for pair := range slices.Chunk(targets, 2) {
		of, known, err := d.latest(pair, now)
		found[pair[0].name] = of.addresses
		refused = append(refused, of.refused...)
		errs = append(errs, err)
		resolved = resolved || known
	}
	n := len(refused)
	for _, s := range r.services {
		n += len(found[s.target])
	}
	if err := errs.join(); n > MaxEndpoints || errors.Is(err, errTooMany) { // endpoints beyond the limit are unknown
		d.failed = true
		return nil, false, fmt.Errorf("%w: more than %d", errTooMany, MaxEndpoints)
	}
	return d.usable(weighted(r.services, found), refused, known && resolved, errs.join())
}

// usable adds the refused endpoints to the others. If there are no others, the lookup has failed.
func (d *DNS) usable(endpoints, refused []Endpoint, known bool, err error) ([]Endpoint, bool, error) {
	refused = slices.Compact(slices.SortedFunc(slices.Values(refused), func(a, b Endpoint) int { return cmp.Compare(a.Refused, b.Refused) }))
	if len(endpoints) == 0 && len(refused) > 0 {
		d.failed = true
		return nil, false, failures{err, fmt.Errorf("no record can be an endpoint: %s", refused[0].Refused)}.join()
	}
	return append(endpoints, refused...), known, err
}

// maxTargets is the largest number of targets of SRV records. Each takes two questions.
const maxTargets = 2000

var errTooMany = errors.New("too many endpoints")

func ask(qtypes []uint16, name string) []question {
	var questions []question
	for _, t := range qtypes {
		questions = append(questions, question{name, t})
	}
	return questions
}

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

const noService = "no such service"

// latest returns the known records of a name from the answers to its questions. If one of two questions has
// records, the other may be denied without a hold: AAAA often is. known is false while there are no records and
// a question has failed.
//
// The SRV target "." means that there is no such service (RFC 2782).
func (d *DNS) latest(questions []question, now time.Time) (r records, known bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	why := noService
	var errs failures
	asked, answered := false, false
	for _, q := range questions {
		a := d.memory[q]
		if a.asked == d.round {
			asked, answered = true, answered || a.err == nil && !a.empty()
			d.failed = d.failed || a.err != nil
		}
		r.addresses = append(r.addresses, a.addresses...)
		r.services = append(r.services, a.services...)
		r.refused = append(r.refused, a.refused...)
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
		d.answered = d.answered || answered
		return r, true, err
	case err != nil:
		return h.records, !h.empty(), err
	case len(r.refused) > 0 && h.empty():
		return r, true, nil
	case len(r.refused) > 0:
		d.failed = d.failed || asked
		return h.records, true, fmt.Errorf("no record can be an endpoint, and the last answer is kept: %s", r.refused[0].Refused)
	}
	if left := d.left(h, questions, now); left > 0 {
		d.failed = d.failed || asked
		return h.records, true, &negativeAnswer{questions, why, now.Add(left)}
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

// holdNegative is how long the last good answer is kept while servers deny the name or its records.
const holdNegative = 30 * time.Second

// left returns how long the records of h are still kept although they are denied. They are
// dropped once the denial has lasted for holdNegative and servers confirm it once more.
func (d *DNS) left(h *staleRecords, questions []question, now time.Time) time.Duration {
	if h.empty() {
		return 0
	}
	if h.since.IsZero() {
		h.since = now
	}
	end := h.since.Add(holdNegative)
	for _, q := range questions {
		if a := d.memory[q]; a.expires.After(end) && end.After(now) {
			a.expires = end
		}
	}
	return end.Sub(now)
}

// A question is a question to a name server. Its name is canonical: lower case, and with the
// dot at its end.
type question struct {
	name  string
	qtype uint16
}

func (q question) String() string { return dns.TypeToString[q.qtype] + " " + q.name }

// A service is an SRV record.
type service struct {
	priority, weight uint16
	port             uint16
	target           string // canonical
}

type records struct {
	addresses []netip.Addr
	services  []service
	refused   []Endpoint // for records that cannot lead to an endpoint
}

// empty reports whether no record can lead to an endpoint.
func (r records) empty() bool { return len(r.addresses) == 0 && len(r.services) == 0 }

// A finding is the answer to a question in a reply.
type finding struct {
	records
	ttl    time.Duration // the smallest one of the alias chain and the records
	next   string        // name to look up next, if an alias leads out of the reply
	denied string        // reason that there is no record, NXDOMAIN or NODATA; else empty
}

// maxAliases is the largest number of CNAME records that are followed.
const maxAliases = 16

// read extracts the answer to q from a reply, following aliases.
func read(reply *dns.Msg, q question) finding {
	f := finding{ttl: forever}
	name, ended := q.name, false
	for i := 0; i < maxAliases && !ended; i++ {
		alias := f.take(reply.Answer, name, q)
		if !f.empty() || len(f.refused) > 0 {
			return f
		}
		if ended = alias == ""; !ended {
			name = alias
		}
	}
	negative, known := negativeTTL(reply.Ns)
	switch {
	case reply.Rcode == dns.RcodeNameError:
		f.denied = "NXDOMAIN"
	case !ended || (name != q.name && !known):
		f.next = name
		return f
	default:
		f.denied = "NODATA"
	}
	f.ttl = min(f.ttl, negative)
	return f
}

// forever is larger than any time to live.
const forever = time.Duration(1 << 62)

// take adds the records of name that answer q. If the name is an alias, take returns its target.
func (f *finding) take(records []dns.RR, name string, q question) (alias string) {
	for _, rr := range records {
		h := rr.Header()
		if h.Class != dns.ClassINET || dns.CanonicalName(h.Name) != name {
			continue
		}
		switch {
		case h.Rrtype == q.qtype:
			if why := f.add(rr); why != "" {
				f.refused = append(f.refused, Endpoint{Refused: fmt.Sprintf("%v: %s", q, why)})
			}
		case h.Rrtype == dns.TypeCNAME:
			alias = dns.CanonicalName(rr.(*dns.CNAME).Target)
		default:
			continue
		}
		f.ttl = min(f.ttl, time.Duration(h.Ttl)*time.Second)
	}
	return alias
}

// add adds a record, or returns why it cannot lead to an endpoint.
func (f *finding) add(rr dns.RR) (refused string) {
	switch r := rr.(type) {
	case *dns.A:
		return f.addIP(r.A)
	case *dns.AAAA:
		return f.addIP(r.AAAA)
	case *dns.SRV:
		target := dns.CanonicalName(r.Target)
		if r.Port == 0 && target != "." { // "." means that there is no service (RFC 2782), whatever the port
			return strings.TrimSuffix(target, ".") + " has port 0"
		}
		f.services = append(f.services, service{r.Priority, r.Weight, r.Port, target})
	}
	return ""
}

func (f *finding) addIP(ip []byte) (refused string) {
	a, ok := netip.AddrFromSlice(ip)
	if !ok {
		return ""
	}
	if refused = sockopt.NoHost(a); refused == "" {
		f.addresses = append(f.addresses, a.Unmap())
	}
	return refused
}

// unsaid is the time to live of a negative answer that does not give one.
const unsaid = 5 * time.Second

// negativeTTL returns how long a denial holds (RFC 2308, section 5), and whether the reply
// gives that time.
func negativeTTL(authority []dns.RR) (ttl time.Duration, known bool) {
	for _, rr := range authority {
		if soa, ok := rr.(*dns.SOA); ok {
			return time.Duration(min(soa.Hdr.Ttl, soa.Minttl)) * time.Second, true
		}
	}
	return unsaid, false
}

type negativeAnswer struct {
	questions []question
	why       string
	until     time.Time
}

func (e *negativeAnswer) Error() string {
	return fmt.Sprintf("%v: %s; the last answer is kept until %s", names(e.questions), e.why, e.until.Local().Format(time.TimeOnly))
}

func names(questions []question) string {
	var texts []string
	for _, q := range questions {
		texts = append(texts, q.String())
	}
	return strings.Join(texts, " and ")
}

// A questionError is why no server has answered a question.
type questionError struct {
	question
	cause error
}

func (e *questionError) Error() string { return fmt.Sprintf("%v: %v", e.question, e.cause) }
func (e *questionError) Unwrap() error { return e.cause }

// failures are the errors of one lookup.
type failures []error

// join returns nil if there are no errors. Otherwise it returns an error of one line that has each different cause once.
func (f failures) join() error {
	var all failures
	for _, err := range f {
		if list, ok := err.(failures); ok {
			all = append(all, list...)
		} else if err != nil {
			all = append(all, err)
		}
	}
	if all == nil {
		return nil
	}
	return all
}

// maxReported is the largest number of causes in the text of one error.
const maxReported = 4

func (f failures) Error() string {
	var causes []string
	asked := map[string][]question{} // the questions with each cause
	for _, err := range f {
		cause, of := err.Error(), []question(nil)
		if e, ok := err.(*questionError); ok {
			cause, of = e.cause.Error(), []question{e.question}
		}
		if _, seen := asked[cause]; !seen {
			causes = append(causes, cause)
		}
		asked[cause] = append(asked[cause], of...)
	}
	var texts []string
	for _, cause := range causes[:min(len(causes), maxReported)] {
		switch of := asked[cause]; {
		case len(of) > 2:
			cause = fmt.Sprintf("%v and %d other lookups: %s", of[0], len(of)-1, cause)
		case len(of) > 0:
			cause = names(of) + ": " + cause
		}
		texts = append(texts, cause)
	}
	if more := len(causes) - maxReported; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// Unwrap supports errors.Is and errors.As.
func (f failures) Unwrap() []error { return f }

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
	asked    int       // the latest round that asked the question
}

// A staleRecords keeps the last good records of a name while servers deny them.
type staleRecords struct {
	records           // never changed: a later source may have them, too
	since   time.Time // of the first denial; zero: there is none
	round   int       // the latest round that needed it
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
	// First the questions that have not failed: if no server answers the others, these are asked nevertheless.
	slices.SortStableFunc(due, func(a, b *result) int { return cmp.Compare(d.memory[a.q].failures, d.memory[b.q].failures) })
	var group sync.WaitGroup
	var silence, answered atomic.Bool
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
			r.reply, r.found, r.err = d.resolve(ctx, r.q, &answered)
			addresses.Add(int64(len(r.found.addresses) + len(r.found.refused)))
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

// errSilence ends a lookup if no server answers a question. Every further question of the lookup might have to wait for
// its own timeout, so it is left for the next lookup.
var errSilence = errors.New("not asked, because no server answers other questions")

var errAliases = errors.New("too many aliases (CNAME)")

// resolve asks q, and follows its aliases. answered is set once a question of the lookup is answered.
func (d *DNS) resolve(ctx context.Context, q question, answered *atomic.Bool) (*dns.Msg, finding, error) {
	ttl := forever
	for range maxAliases {
		d.asked.Add(1)
		reply, err := d.servers.ask(ctx, q, answered)
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

// learn records the result of asking q. After a failure the last answer stays.
func (d *DNS) learn(q question, f finding, err error, now time.Time, jitter float64) {
	a := d.memory[q]
	if a.err = err; err != nil {
		if err != errSilence { // it was not asked
			a.failures, a.asked = a.failures+1, d.round
		}
		a.expires = now.Add(d.cfg.backoff(a.failures, jitter))
		return
	}
	a.finding, a.failures, a.asked = f, 0, d.round
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

// backoff returns the pause after a number of failures. The pause doubles with each failure, from MinTTL up to
// the smaller of 30 s and MaxTTL. jitter picks a value between half of the pause and all of it.
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
	if f.empty() {
		most = max(min(most, holdNegative), c.MinTTL)
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
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.holds, func(_ question, h *staleRecords) bool { return h.round != d.round })
	return next
}

func plain(addresses []netip.Addr, port uint16) []Endpoint {
	var endpoints []Endpoint
	for _, a := range slices.Compact(slices.SortedFunc(slices.Values(addresses), netip.Addr.Compare)) {
		endpoints = append(endpoints, Endpoint{Address: netip.AddrPortFrom(a, port).String(), Weight: 1})
	}
	return endpoints
}

// A share is an address with its part of the weight of its target.
type share struct {
	address  netip.AddrPort
	priority uint16
	weight   float64
}

// weighted returns endpoints for SRV records and the addresses of their targets, sorted by
// priority and address.
func weighted(services []service, found map[string][]netip.Addr) []Endpoint {
	shares := merge(split(services, found))
	var endpoints []Endpoint
	for i := 0; i < len(shares); {
		j := i
		for j < len(shares) && shares[j].priority == shares[i].priority {
			j++
		}
		level := shares[i:j]
		for k, w := range scale(level) {
			endpoints = append(endpoints, Endpoint{
				Address: level[k].address.String(), Weight: w, Backup: level[k].priority != shares[0].priority,
			})
		}
		i = j
	}
	return endpoints
}

// split gives each address of a target an equal part of the target's weight. Weight 0 is less
// than any other (RFC 2782: "a very small chance"), or the same for all.
func split(services []service, found map[string][]netip.Addr) (shares []share) {
	for _, s := range services {
		weight := float64(s.weight)
		if s.weight == 0 {
			weight = 1.0 / 256
		}
		addresses := found[s.target]
		for _, a := range addresses {
			shares = append(shares, share{netip.AddrPortFrom(a, s.port), s.priority, weight / float64(len(addresses))})
		}
	}
	return shares
}

// merge sorts shares and merges the shares of each address. The merged share has the lowest priority value of
// the address, and the sum of the weights with that priority.
func merge(shares []share) (merged []share) {
	slices.SortFunc(shares, func(a, b share) int {
		return cmp.Or(a.address.Compare(b.address), cmp.Compare(a.priority, b.priority), cmp.Compare(a.weight, b.weight))
	})
	for _, s := range shares {
		last := len(merged) - 1
		switch {
		case last < 0 || merged[last].address != s.address:
			merged = append(merged, s)
		case merged[last].priority == s.priority:
			merged[last].weight += s.weight
		}
	}
	slices.SortFunc(merged, func(a, b share) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), a.address.Compare(b.address))
	})
	return merged
}

// scale returns whole weights in the proportion of level's weights. They are the smallest whole weights that
// are exact to a hundredth, if none of these exceeds [MaxWeight]. Otherwise the largest is MaxWeight, and the
// others are rounded. No weight is 0.
func scale(level []share) []int {
	largest := 0.0
	for _, s := range level {
		largest = max(largest, s.weight)
	}
	weights := make([]int, len(level))
	factor := MaxWeight / largest
	for f := 1; float64(f) <= MaxWeight; f++ {
		if try := float64(f) / largest; exact(level, try) {
			factor = try
			break
		}
	}
	for i, s := range level {
		weights[i] = max(int(s.weight*factor+0.5), 1)
	}
	return weights
}

// exact reports whether weights times factor are whole numbers within a hundredth.
func exact(level []share, factor float64) bool {
	for _, s := range level {
		w := s.weight * factor
		whole := float64(int(w + 0.5))
		if whole < 1 || (w-whole) > whole/100 || (whole-w) > whole/100 {
			return false
		}
	}
	return true
}
