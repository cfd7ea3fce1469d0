package worker

import (
	"cmp"

	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/relay"
)

// records are the records of a worker's clients: wide ones of those that are not joined, in
// their pendingClients, and small ones of sessions, in slabs. Where none are kept there is no
// memory for them, but for two pointers.
type records struct {
	scratch *record.Record // of a client that has ended, or was not taken on
	number  uint64         // of the last one
	free    []*kept
	rests   []*record.Rest
}

// A kept is the record of a session that goes on. It stands in for its serving's
// listenerRef.
type kept struct {
	listenerRef
	record.Kept
}

// keptSlab is how many are made at a time.
const keptSlab = 128

// beginRecord begins the record of a client, in memory of the caller's that is made if it must
// be, unless none is kept.
func (w *worker) beginRecord(own **record.Record, l *Listening, accepted int64) *record.Record {
	g, id := w.group, w.nextID()
	sampler := g.cfg.Host.Traces(l, id)
	if sampler == 0 && !g.cfg.Host.Records(l, id) {
		return nil
	}
	if *own == nil {
		*own = new(record.Record)
	}
	(*own).Begin(id, l.Name, w.index, accepted)
	(*own).Sampler = sampler
	return *own
}

// nextID returns the ID of the next client's record.
func (w *worker) nextID() record.ID {
	w.records.number++
	return w.group.ids.Of(w.records.number*uint64(len(w.group.workers)) + uint64(w.index))
}

// recordPending begins the record of a client that is taken on.
func (w *worker) recordPending(c *pendingClient, accepted int64) {
	c.record = w.beginRecord(&c.ownRecord, c.serving.socket, accepted)
	if c.record != nil {
		c.record.Begun = w.loop.Now()
		c.client.Record = c.record
	}
}

// describe fills in the addresses of a client's connection and of its PROXY header. It must
// have its descriptor still.
func describe(r *record.Record, c *Client) {
	r.Client = c.Peer()
	if r.Local = c.listening.Local; !r.Local.IsValid() { // the socket takes clients of several addresses
		r.Local = c.Local()
	}
	if c.Header.Known() {
		r.Source, r.Destination = c.Header.Source, c.Header.Destination
	}
}

// learned notes what a client has said so far, as far as its bytes were looked at.
func learned(r *record.Record, c *Client) {
	hello, said, first := &c.Hello, &c.Postgres, &c.First
	if hello.ServerName == "" && len(hello.ALPN) == 0 {
		hello = &first.Hello
	}
	r.Hello(hello.ServerName, hello.ALPN)
	known := func(p *firstbytes.Property) string {
		if p.Verdict != firstbytes.Yes {
			return ""
		}
		return p.Value
	}
	r.Login(cmp.Or(said.User, known(&first.User)), cmp.Or(said.Database, known(&first.Database)))
	protocol := ""
	if p, ok := first.Recognised(); ok {
		protocol = p.String()
	} else if said.User != "" || said.Asked {
		protocol = firstbytes.Postgres.String()
	}
	r.First(protocol, known(&first.Host), known(&first.Path))
}

// recordRefused is the end of one that was refused before it was taken on. r may be nil.
func (w *worker) recordRefused(l *Listening, r *record.Record, why Refusal, cause error) {
	if r != nil {
		r.Outcome, r.Err, r.Refusal, r.Ended = record.Refused, cause, why.String(), w.loop.Now()
		w.group.cfg.Host.Ended(l, nil, r)
	}
}

// recordUnjoined is the end of a client that is not joined.
func (w *worker) recordUnjoined(c *pendingClient) {
	r := c.record
	if r == nil {
		return
	}
	c.record, c.client.Record = nil, nil
	describe(r, &c.client)
	learned(r, &c.client)
	r.Resume(w.loop.Now())
	r.Ended = w.loop.Now()
	if c.phase == responding || c.phase == lingering {
		r.Result.BToA.Copied = int64(len(c.step.Bytes) - len(c.rest))
	}
	switch {
	case c.phase == lingering && r.Outcome != record.Refused: // it has the response
		r.Outcome = record.Responded
	case r.Outcome == record.Joined: // it has not taken the response in time
		r.Outcome = record.Left
	}
	w.group.cfg.Host.Ended(c.serving.socket, nil, r)
	r.Err = nil
}

// takeRecord takes the record of a client that is handed over, which is the caller's then; nil:
// none is kept.
func (w *worker) takeRecord(c *pendingClient) *record.Record {
	r := c.record
	if r == nil {
		return nil
	}
	c.record, c.ownRecord = nil, nil
	describe(r, &c.client)
	learned(r, &c.client)
	r.TLS = true
	return r
}

// keepPending keeps the record of a client that is joined now, if it has one, and returns the
// listenerRef of its conn from then on.
func (w *worker) keepPending(c *pendingClient, b Binding) *listenerRef {
	r := c.record
	if r == nil {
		return &c.serving.listenerRef
	}
	describe(r, &c.client)
	r.Joined = w.loop.Now()
	if c.moved > 0 {
		r.ClientFirst = r.Joined
	}
	return w.keep(r, c.serving, b)
}

// keep keeps the record of a session that begins.
func (w *worker) keep(r *record.Record, s *serving, b Binding) *listenerRef {
	w.group.cfg.Host.Began(s.socket, b, r)
	return w.pack(r, s)
}

// pack keeps the record of a session that goes on.
func (w *worker) pack(r *record.Record, s *serving) *listenerRef {
	k, rest := w.records.takeKept(), w.records.takeRest()
	if !k.Pack(r, rest) {
		w.records.rests = append(w.records.rests, rest)
	}
	k.listenerRef = listenerRef{serving: s, kept: k}
	return &k.listenerRef
}

func (t *records) takeKept() *kept {
	if len(t.free) == 0 {
		slab := make([]kept, keptSlab)
		for i := range slab {
			t.free = append(t.free, &slab[i])
		}
	}
	last := len(t.free) - 1
	k := t.free[last]
	t.free = t.free[:last]
	return k
}

func (t *records) takeRest() *record.Rest {
	last := len(t.rests) - 1
	if last < 0 {
		return new(record.Rest)
	}
	rest := t.rests[last]
	t.rests = t.rests[:last]
	return rest
}

// giveKept takes back the memory of a session that has ended.
func (t *records) giveKept(k *kept) {
	if rest := k.Rest(); rest != nil && len(t.rests) < maxSpare {
		*rest = record.Rest{} // its names may be given up
		t.rests = append(t.rests, rest)
	}
	k.listenerRef = listenerRef{}
	t.free = append(t.free, k)
}

// recordEnded is the end of a session.
func (w *worker) recordEnded(n *conn, k *kept, b Binding, res *relay.Result, err error, away *laneSession) {
	if w.records.scratch == nil {
		w.records.scratch = new(record.Record)
	}
	r, s := w.records.scratch, k.serving
	k.Unpack(r)
	w.records.giveKept(k)
	n.ref = &s.listenerRef
	r.Listener, r.Loop, r.Ended = s.socket.Name, w.index, w.loop.Now()
	r.Result, r.Err = *res, err
	setNames(r, b)
	w.group.judge(b, res, !s.socket.TCP, !n.tcp(), r, away)
	w.group.cfg.Host.Ended(s.socket, b, r)
	r.Err = nil
}

var _ relay.Observer = (*conn)(nil)

// FirstByte implements [relay.Observer].
func (n *conn) FirstByte(_ *relay.Driven, source relay.Side) {
	if k := n.ref.kept; k != nil {
		k.FirstByte(source == relay.SideA, n.worker().loop.Now())
	}
}

// HalfClosed implements [relay.Observer].
func (n *conn) HalfClosed(*relay.Driven, relay.Side) {
	if k := n.ref.kept; k != nil {
		k.HalfClosed(n.worker().loop.Now())
	}
}

// recordEnd is the end of a client that is not on its loop any more. It may be called by any
// goroutine.
func (h *Offloaded) recordEnd(b Binding, joined, left, canceled bool, res relay.Result, err error) {
	g, r := h.serving.socket.group, h.record
	h.record, h.Client.Record = nil, nil
	now := g.cfg.Now()
	r.Resume(now)
	r.Loop, r.Ended, r.Result, r.Err = -1, now, res, err
	switch {
	case joined:
		setNames(r, b)
	case left:
		r.Outcome = record.Left
	case err != nil && canceled:
		r.Outcome = record.Canceled
	case err != nil:
		r.Outcome, r.Refusal = record.Refused, refusedOffLoop(err).String()
	default:
		r.Outcome = record.Responded
	}
	g.cfg.Host.Ended(h.serving.socket, b, r)
}

// setNames fills in the names of a binding.
func setNames(r *record.Record, b Binding) {
	if b != nil {
		r.Upstream, r.Endpoint = b.Names()
	}
}

// judge has the host judge a session that has ended, if the kernel's account of its connections was taken, and fills in the
// record, which may be nil. Local sides are unix sockets. away is its part in the lane, or nil.
func (g *Group) judge(b Binding, res *relay.Result, localClient, localEndpoint bool, r *record.Record, away *laneSession) {
	if sample, ok := sampleAtEnd(res, localClient, localEndpoint, away); ok {
		g.judgeBy(b, sample, r)
	}
}

// judgeBy has the host judge by a sample. It is on the heap from here on: short sessions have none.
func (g *Group) judgeBy(b Binding, sample verdict.Sample, r *record.Record) {
	v := g.cfg.Host.Judge(b, &sample)
	if r != nil {
		r.Verdict = v.Kind.String()
		r.ClientLeg, r.EndpointLeg = record.LegOf(&sample.A.Leg), record.LegOf(&sample.B.Leg)
	}
}

// An EndCounter is a [Binding] that counts the ends of its sessions by loop, so that loops need not
// share counters.
type EndCounter interface {
	Binding
	// Counted is called at the end of a session, once, with the index of its loop, or of the one
	// that the client came from, and the error of [Binding.Ended]. It must not wait.
	Counted(loop int, r relay.Result, err error)
}

// countEnd counts the end of a session, if its binding does.
func countEnd(b Binding, loop int, r relay.Result, err error) {
	if c, ok := b.(EndCounter); ok {
		c.Counted(loop, r, err)
	}
}
