package worker

import (
	"cmp"
	"errors"

	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/relay"
)

// records are the records of a worker's clients: a large one in the Client until it is joined, then a small one for the
// session, in a slab. Without records this takes only two pointers.
type records struct {
	scratch *record.Record // for a client that has ended, or was not taken on
	number  uint64         // of the last record
	free    []*kept
	rests   stack[*record.Rest]
}

// A kept is the record of a running session. It stands in for the listenerRef of the session's serving.
type kept struct {
	listenerRef
	record.Kept
}

// keptSlab is how many records are made at a time.
const keptSlab = 128

// beginRecord gives a client its ID, and begins its record if one is kept.
func (w *worker) beginRecord(c *Client, in *accepted) {
	g := w.group
	c.ID = w.nextID()
	sampler := g.cfg.Host.Traces(c.ID)
	if sampler == 0 && !g.cfg.Host.Records(in.service.Name, c.ID) {
		return
	}
	if c.ownRecord == nil {
		c.ownRecord = new(record.Record)
	}
	c.Record = c.ownRecord
	c.Record.Begin(c.ID, in.service.Name, w.index, in.at)
	c.Record.Sampler = sampler
}

// nextID returns the ID of the next client's record.
func (w *worker) nextID() record.ID {
	w.records.number++
	return w.group.ids.Of(w.records.number*uint64(len(w.group.workers)) + uint64(w.index))
}

// describe fills in the addresses of a client's connection and of its PROXY header. The client must still have its
// descriptor.
func describe(r *record.Record, c *Client) {
	r.Client = c.Peer()
	if r.Local = c.listening.Local; !r.Local.IsValid() { // the socket takes clients of several addresses
		r.Local = c.Local()
	}
	if c.Header.Known() {
		r.Source, r.Destination = c.Header.Source, c.Header.Destination
	}
}

// learned notes what is known of a client from its first bytes.
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

func (w *worker) recordUnjoined(c *Client) {
	r := c.Record
	if r == nil {
		return
	}
	c.Record = nil
	describe(r, c)
	learned(r, c)
	r.Resume(w.loop.Now())
	r.Ended = w.loop.Now()
	if n := c.sent(); n > 0 {
		r.Result.BToA.Copied, r.Result.BToA.Lost = n, c.untaken()
	}
	switch {
	case c.phase == lingering && r.Outcome != record.Refused && r.Result.BToA.Lost == 0: // the client has the response
		r.Outcome = record.Responded
	case r.Outcome == record.Joined: // the client has not taken the response in time
		r.Outcome = record.Left
	}
	w.group.cfg.Host.Ended(c.listening, nil, r)
	r.Err = nil
}

// keepPending keeps the record, if any, of a client that is joined now, and returns the listenerRef for its conn.
func (w *worker) keepPending(c *Client, b Binding) *listenerRef {
	r := c.Record
	if r == nil {
		return &c.serving.listenerRef
	}
	describe(r, c)
	r.Joined = w.loop.Now()
	if c.moved > 0 {
		r.ClientFirst = r.Joined
	}
	return w.keep(r, c.serving, b)
}

func (w *worker) keep(r *record.Record, s *serving, b Binding) *listenerRef {
	w.group.cfg.Host.Began(s.socket, b, r)
	return w.pack(r, s)
}

func (w *worker) pack(r *record.Record, s *serving) *listenerRef {
	k, rest := w.records.takeKept(), w.records.rests.take()
	if rest == nil {
		rest = new(record.Rest)
	}
	if !k.Pack(r, rest) {
		w.records.rests.give(rest)
	}
	k.listenerRef = listenerRef{serving: s, kept: k}
	return &k.listenerRef
}

// unpack returns the record of a session in memory that the worker owns.
func (w *worker) unpack(k *kept) *record.Record {
	if w.records.scratch == nil {
		w.records.scratch = new(record.Record)
	}
	r := w.records.scratch
	k.Unpack(r)
	r.Listener, r.Loop = k.serving.service.Name, w.index
	return r
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

func (t *records) giveKept(k *kept) {
	if rest := k.Rest(); rest != nil {
		*rest = record.Rest{} // so that its names can be freed
		t.rests.give(rest)
	}
	k.listenerRef = listenerRef{}
	t.free = append(t.free, k)
}

// An ending is a session that has ended, on a loop or elsewhere, for observe.
type ending struct {
	socket   *Listening
	loop     int // on which the session ran, or from which its client came
	binding  Binding
	result   relay.Result
	err      error
	local    [2]bool        // the client's and the endpoint's sockets are not of TCP
	away     *laneSession   // the session's part in the lane; nil: it had none
	record   *record.Record // nil: none is kept
	unjoined bool           // there was no session: the client had left its loop, and was not joined
}

// observe reports the end of a session: to its binding, which counts it and judges the health of the endpoint; to the host
// for a verdict on what limited it, if the kernel's account of its connections was taken; and its record to the session log
// and traces.
func (g *Group) observe(e *ending) {
	if e.binding != nil {
		e.binding.Ended(e.loop, e.result, e.err)
	}
	if r := e.record; r != nil {
		r.Ended, r.Result, r.Err = g.cfg.Now(), e.result, e.err
		setNames(r, e.binding)
	}
	if !e.unjoined {
		if sample, ok := e.sample(); ok {
			g.judge(e, sample)
		}
	}
	if r := e.record; r != nil {
		g.cfg.Host.Ended(e.socket, e.binding, r)
		r.Err = nil
	}
}

// judge lets the host judge a sample. Only here the sample moves to the heap: short sessions have none.
func (g *Group) judge(e *ending, sample verdict.Sample) {
	v := g.cfg.Host.Judge(e.binding, &sample)
	if r := e.record; r != nil {
		r.Verdict = v.Kind.String()
		r.ClientLeg, r.EndpointLeg = record.LegOf(&sample.A.Leg), record.LegOf(&sample.B.Leg)
	}
}

// sample returns the session's known waits. ok is false if none are known.
func (e *ending) sample() (s verdict.Sample, ok bool) {
	s = verdict.OfResult(&e.result, e.local[0], e.local[1])
	if c := e.away; c != nil {
		c.addTo(&s, e.result.Legs == nil)
	}
	return s, e.result.Legs != nil || s.Lane != nil
}

func (n *conn) Ended(_ *relay.Driven, r relay.Result, err error) {
	w, s := n.worker(), n.ref.serving
	e := ending{
		socket: s.socket, loop: w.index, binding: n.binding(), result: r, err: err, local: [2]bool{!s.socket.TCP, !n.tcp()}, away: w.laneEnded(n),
	}
	w.ended.Add(r)
	if errors.Is(err, record.ErrEnds) {
		w.canceledClients++
	}
	w.scanPast(n, r)
	w.deferred.ended(e.binding, &r)
	if errors.Is(err, ErrSecondHello) || errors.Is(err, ErrPrereadMemory) {
		w.refusedClients++
		w.group.cfg.Host.Refused(s.socket, err)
	}
	if k := n.ref.kept; k != nil {
		e.record = w.unpack(k)
		w.records.giveKept(k)
		n.ref = &s.listenerRef
	}
	w.group.observe(&e)
	delete(w.lanes.results, e.away)
	w.forget(n)
	admissionToken := n.admissionToken
	w.freeSlot(n, s)
	w.group.release(s, s.service.Admitter != nil, admissionToken)
}

var _ relay.Observer = (*conn)(nil)

func (n *conn) FirstByte(_ *relay.Driven, source relay.Side) {
	if k := n.ref.kept; k != nil {
		k.FirstByte(source == relay.SideA, n.worker().loop.Now())
	}
}

func (n *conn) HalfClosed(*relay.Driven, relay.Side) {
	if k := n.ref.kept; k != nil {
		k.HalfClosed(n.worker().loop.Now())
	}
}

func setNames(r *record.Record, b Binding) {
	if b != nil {
		r.Upstream, r.Endpoint = b.Names()
	}
}
