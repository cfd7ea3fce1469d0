//go:build linux

// Package soak_test keeps the program busy with connections that do at random the things that
// connections do: stall, half-close, reset, send urgent bytes, close with bytes unread, send
// nothing. It drives both ends of every connection, so it knows which conditions must hold.
// Afterwards it has the program account for every byte, pipe and descriptor.
//
// The behaviour of a connection follows from the seed and the connection's number alone. The
// number has two parts, the round and a count within it. In odd rounds all bytes arrive: a
// reset waits until they have. So the sums of the program must be exact to the byte. In even
// rounds some connections are torn down in the middle. How many bytes a kernel drops then is
// unknown, so the sums are compared with both sides.
package soak_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/lane/lossy"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/testutil/program"
)

func TestMain(m *testing.M) { leak.Main(m) }

// The defaults of a config.
const (
	usualPatience = 30 * time.Second
	usualRound    = 10 * time.Second
	laneRound     = 20 * time.Second // its sessions linger for half of that
	// A conversation of small messages has a thousand turns, and a loss in every tenth costs a timer of 200 ms or more.
	talkPatience = 5 * time.Minute
	talkRound    = 2 * time.Minute
)

// A config is the load of a proxy.
type config struct {
	command string // of the program: penstock proxy, or penstock run with lane
	seed    uint64 // of everything that is drawn
	// lane has every second connection leave user space, over a loopback that loses, doubles and delays. It takes a
	// network namespace of this process's own.
	lane        bool
	duration    time.Duration // how long connections are opened
	connections int           // how many there are at once
	// messages has connections exchange small messages, and be opened until so many have come, in place of for a time; 0: neither.
	// With lane it is switched off and on at random meanwhile, so that sessions come back and leave again.
	messages int64
	// round is how long a round is; 0 means 10 s, or half of duration if that is less. With lane it is 20 s, or all of
	// duration; with messages two minutes.
	round    time.Duration
	longest  time.Duration // how long a connection may pause; 0 means 3 s
	patience time.Duration // how long anything may take beside the pauses; 0 means 30 s, and with messages five minutes
	settling time.Duration // 0 means settleTime
}

func (c *config) fill() {
	if c.messages > 0 {
		c.patience, c.round = cmp.Or(c.patience, talkPatience), cmp.Or(c.round, talkRound)
	}
	c.patience = cmp.Or(c.patience, usualPatience)
	c.longest = cmp.Or(c.longest, longestIdle)
	round, settling := min(usualRound, max(c.duration/2, time.Millisecond)), settleTime
	if c.lane {
		round, settling = min(laneRound, c.duration), laneSettleTime
	}
	c.settling = cmp.Or(c.settling, settling)
	c.round = cmp.Or(c.round, round)
}

var errViolated = errors.New("something was violated")

// soak is a run.
type soak struct {
	config
	proxy  *program.Program
	at     [2]string   // its listeners; sessions of the second stay in user space
	link   *lossy.Link // with lane: the loopback of this network namespace
	origin *origin
	now    atomic.Pointer[round]
	tally  tally
	ledger ledger
	ctx    context.Context         // of the run
	cancel context.CancelCauseFunc // ends it

	mu         sync.Mutex
	violations []string // of mu
}

// violate notes a violation, and ends the run: later ones may be its consequence. An effect of
// the end of the run is no violation.
func (s *soak) violate(texts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() == nil {
		s.violations = append(s.violations, texts...)
	}
	s.cancel(errViolated)
}

// run soaks a proxy. The proxy's faults are violations; anything else that fails is the test's failure.
func run(t *testing.T, cfg config) *soak {
	t.Helper()
	s := &soak{config: cfg}
	s.fill()
	s.ctx, s.cancel = context.WithCancelCause(t.Context())
	defer s.cancel(nil)
	o, l, err := s.listen(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.origin = o
	s.newRound(0, time.Now())
	var serving sync.WaitGroup
	defer serving.Wait()
	defer s.cancel(nil)
	serving.Go(func() { o.serve(s.ctx, l) })
	s.start(t)
	if err := s.ledger.open(s.ctx, s); err != nil {
		t.Fatal(err)
	}
	if s.lane {
		d, err := net.InterfaceByName("lo")
		if err == nil {
			s.link, err = lossy.Attach(d.Index, linkRate)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer s.link.Close()
	}
	switch err := s.rounds(s.ctx); {
	case errors.Is(err, errViolated):
	case err != nil:
		t.Fatal(err)
	default:
		s.proxy.End()
	}
	for a, n := range s.tally.done {
		t.Logf("%s: %d", a, n)
	}
	return s
}

// sound soaks the program, and wants everything accounted for.
func sound(t *testing.T, cfg config) *soak {
	t.Helper()
	cfg.command = program.Build(t)
	cfg.seed = uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d connections at once", cfg.seed, cfg.connections)
	s := run(t, cfg)
	for _, v := range s.violations {
		t.Error(v)
	}
	return s
}

// TestSoak: connections that stall, reset, half-close and send urgent bytes, with every byte and descriptor accounted for at the end of each
// round. It runs for some seconds, or for a minute where everything runs.
func TestSoak(t *testing.T) {
	software.Long(t, "connections through the program")
	cfg := config{connections: 48, duration: 2 * time.Second, longest: 200 * time.Millisecond}
	if full.Everything() {
		cfg = config{connections: 64, duration: time.Minute}
	}
	s := sound(t, cfg)
	for _, a := range []action{opened, silentClients, halfCloses, quietResets, resetsSeen, urgentBytes, messages, stalls, tinyBuffers, summaries} {
		if s.tally.of(a) == 0 {
			t.Errorf("not done: %s", a)
		}
	}
}

// TestSoakWithALane: the same where every second session may leave user space, over a link that loses packets.
func TestSoakWithALane(t *testing.T) {
	full.Only(t, "sessions that have left user space linger, and the link loses packets")
	if alone(t) {
		sound(t, config{connections: 64, duration: 40 * time.Second, lane: true})
	}
}

// TestSoakOfMessages: small messages until so many have come, while the lane is switched off and on: sessions come back and leave again.
func TestSoakOfMessages(t *testing.T) {
	full.Only(t, "200,000 messages over a link that loses packets")
	if !alone(t) {
		return
	}
	s := sound(t, config{connections: 64, messages: 200_000, lane: true})
	if l := s.ledger.last.Summary.Lane; l.Left == 0 || l.Returned == 0 {
		t.Errorf("sessions left user space %d times, and came back %d times", l.Left, l.Returned)
	}
}

// alone has the test go on in a network of its own. The lane takes root.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a lane takes root")
	}
	return netns.Alone(t)
}

func (s *soak) start(t *testing.T) {
	t.Helper()
	dir := sockets.Dir(t)
	if !s.lane {
		s.proxy = program.Proxy(t, s.command, dir, "--listen", "127.0.0.1:0", "--to", s.origin.address, "--log", "json")
		s.at[0] = s.proxy.At("proxy")
		return
	}
	s.proxy = program.Start(t, s.command, dir, fmt.Sprintf(`
lane: {devices: [lo], after: 1ms}
listeners:
  - {name: leaves, bind: "127.0.0.1:0", upstream: sink, lane: require, socket: {keepalive: 2s}}
  - {name: stays, bind: "127.0.0.1:0", upstream: sink, lane: off, socket: {keepalive: 2s}}
upstreams:
  - {name: sink, endpoints: [%q], health_check: off, outlier_detection: off, circuit_breaker: off}
`, s.origin.address), "--log", "json")
	s.proxy.Until("the lane is on", func(st *admin.Status) bool { return st.Lane != nil && st.Lane.State == admin.LaneOn })
	s.at = [2]string{s.proxy.At("leaves"), s.proxy.At("stays")}
}

// settle waits until the proxy holds no connection.
func (s *soak) settle(ctx context.Context) error {
	for pause := time.Millisecond; ; pause *= 2 {
		st, err := s.proxy.Status(ctx)
		if err != nil || st.Connections.Active == 0 {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("the proxy still holds %d connections after all were closed", st.Connections.Active)
		}
	}
}

// rss is its memory that is not shared, in bytes (proc(5), RssAnon).
func (s *soak) rss() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.proxy.Process.Pid))
	if err != nil {
		return 0, err
	}
	var kib int64
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	_, err = fmt.Sscanf(rest, "%d kB", &kib)
	return kib << 10, err
}

// enough reports whether all messages have come that are to; without messages it never is.
func (s *soak) enough() bool { return s.messages > 0 && s.tally.of(arrivals) >= s.messages }

// rounds soaks until the time is over, or the messages have come, or something is violated.
func (s *soak) rounds(ctx context.Context) error {
	end := time.Now().Add(s.duration)
	for n := uint32(1); ctx.Err() == nil && !s.enough() && (s.messages > 0 || time.Now().Before(end)); n++ {
		until := time.Now().Add(s.config.round)
		if s.messages == 0 && end.Sub(until) < s.config.round/2 {
			until = end // no short one at the end
		}
		if err := s.oneRound(ctx, s.newRound(n, until)); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// oneRound opens connections, waits for their ends, and closes the ledger.
func (s *soak) oneRound(ctx context.Context, r *round) error {
	watching, stop := context.WithCancel(ctx)
	var watch, workers sync.WaitGroup
	watch.Go(func() { s.watch(ctx, watching, r) })
	if s.lane && s.messages > 0 {
		watch.Go(func() { s.flips(ctx, watching, r.n) })
	}
	for range s.connections {
		workers.Go(func() { r.connect(ctx) })
	}
	workers.Wait()
	stop()
	watch.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.ledger.close(ctx, s, r)
}

type flow struct {
	Sent     int64
	Received int64
}

func (f *flow) add(o flow) {
	f.Sent += o.Sent
	f.Received += o.Received
}

// flows are those of both directions: from the client and from the server.
type flows [2]flow

func (f *flows) add(o flows) {
	f[client].add(o[client])
	f[server].add(o[server])
}

// round is some time of connections that come and go, between two moments at
// which there is none.
type round struct {
	s     *soak
	n     uint32
	until time.Time
	next  atomic.Uint32

	mu    sync.Mutex
	pairs map[id]*pair // not judged yet
	// exact are bytes of connections on which all must arrive, torn of the others.
	exact, torn flows
	// ended and reset are connections that have come to the origin with no or not
	// all of their number, by how they ended; silent are the clients that ended so.
	ended, reset, silent int64
}

func (s *soak) newRound(n uint32, until time.Time) *round {
	r := &round{s: s, n: n, until: until, pairs: make(map[id]*pair)}
	s.now.Store(r)
	return r
}

// connect makes connections, one after the other, until the time is over.
func (r *round) connect(ctx context.Context) {
	for ctx.Err() == nil && time.Now().Before(r.until) && !r.s.enough() {
		i := id{r.n, r.next.Add(1)}
		c := newPair(draw(r.s.seed, i, r.s.longest, r.s.messages > 0), &r.s.tally, r.s.patience)
		if err := r.one(ctx, c); err != nil && ctx.Err() == nil {
			r.s.violate(fmt.Sprintf("connection %v: client: expected to be connected, got %v", i, err))
		}
	}
}

// one is a connection from its beginning until both ends are over.
func (r *round) one(ctx context.Context, c *pair) error {
	o := c.plan.parts[client].socket
	o.probes = r.s.probes()
	r.with(func() { r.pairs[c.plan.id] = c })
	r.s.tally.dialed.Add(1)
	conn, err := o.dial(ctx, r.s.address(c.plan.id), r.s.patience)
	if err != nil {
		r.with(func() { delete(r.pairs, c.plan.id) })
		return err
	}
	r.s.opened(c.plan)
	if r.s.leaves(c.plan.id) {
		r.s.tally.count(throughLane)
	}
	if c.serve(ctx, client, conn) {
		r.judge(c)
	}
	c.mu.Lock()
	wait := c.attached || c.plan.exact() && !c.plan.silent
	c.mu.Unlock()
	if !wait {
		return nil // the server may have seen nothing of it
	}
	select {
	case <-c.done:
	case <-time.After(r.s.patience):
	case <-ctx.Done():
	}
	return nil
}

func (s *soak) opened(p *plan) {
	s.tally.count(opened)
	if p.silent {
		s.tally.count(silentClients)
	}
	for _, part := range p.parts {
		if b := part.socket.sendBuffer; b > 0 && b < tiny {
			s.tally.count(tinyBuffers)
		}
	}
}

func (r *round) with(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *round) attach(ctx context.Context, i id, conn *net.TCPConn) {
	var c *pair
	r.with(func() { c = r.pairs[i] })
	if c == nil || c.plan.silent || !c.attach() {
		r.s.violate(fmt.Sprintf("server: expected a connection that is open, once, got number %v", i))
		return
	}
	o := c.plan.parts[server].socket
	e := c.ends[server]
	control(conn, func(fd int) { _ = o.apply(fd) })
	_ = conn.SetNoDelay(!o.nagle)
	c.mu.Lock()
	e.received = greeting
	c.mu.Unlock()
	if c.serve(ctx, server, conn) {
		r.judge(c)
	}
}

// stranger notes a connection that has not said its number.
func (r *round) stranger(n int, err error) {
	r.with(func() { r.torn[client].Received += int64(n) })
	switch {
	case errors.Is(err, io.EOF):
		r.with(func() { r.ended++ })
	case errors.Is(err, io.ErrUnexpectedEOF):
		r.s.violate(fmt.Sprintf("server: expected the %d bytes of a number or a reset, got an end of file after %d", greeting, n))
	case errors.Is(err, syscall.ECONNRESET):
		r.with(func() { r.reset++ })
	case errors.Is(err, os.ErrDeadlineExceeded):
		r.s.violate(fmt.Sprintf("server: expected something of a connection, got nothing for %v", r.s.patience+r.s.longest))
	default:
		r.s.violate(fmt.Sprintf("server: expected the number of a connection, got %v", err))
	}
}

// judge is called once for a connection that is over.
func (r *round) judge(c *pair) {
	faults, moved := c.faults(), c.flows()
	r.s.tally.add(arrivals, c.arrivals())
	r.with(func() {
		delete(r.pairs, c.plan.id)
		switch {
		case c.plan.silent:
			if c.ends[client].part.end.how != reset {
				r.silent++
			}
		case c.plan.exact():
			r.exact.add(moved)
		default:
			r.torn.add(moved)
		}
	})
	if len(faults) > 0 {
		r.s.violate(fmt.Sprintf("connection %v: %s (%v)", c.plan.id, strings.Join(faults, "; "), c.plan))
	}
}

// flows returns the bytes of a connection in both directions.
func (c *pair) flows() (f flows) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r, e := range c.ends {
		f[r] = flow{Sent: e.sent, Received: c.ends[role(r).other()].received}
	}
	return f
}

// arrivals is how many sends of both ends have come whole.
func (c *pair) arrivals() (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r, e := range c.ends {
		n += e.part.arrived(c.ends[role(r).other()].received - e.greeted())
	}
	return n
}

// finish judges the connections that never reached the server, once none can any more.
func (r *round) finish() {
	var rest []*pair
	r.with(func() {
		for _, c := range r.pairs {
			rest = append(rest, c)
		}
	})
	for _, c := range rest {
		r.judge(c)
	}
}

// origin accepts the connections from the proxy.
type origin struct {
	s       *soak
	address string
	mu      sync.Mutex
	changed sync.Cond // of mu
	serving int       // of mu; connections
	probes  int       // of mu; connections of its own that it has accepted
}

// listen returns the origin of s and its listener. Sockets that it accepts take
// urgent bytes with the others, and lose none of them.
func (s *soak) listen(ctx context.Context) (*origin, net.Listener, error) {
	cfg := net.ListenConfig{Control: options{probes: s.probes()}.set, KeepAlive: -1}
	l, err := cfg.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	o := &origin{s: s, address: l.Addr().String()}
	o.changed.L = &o.mu
	return o, l, nil
}

// serve accepts until ctx is done, and ends all connections then.
func (o *origin) serve(ctx context.Context, l net.Listener) {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() == nil {
				o.s.violate(fmt.Sprintf("the origin: %v", err))
			}
			return
		}
		handlers.Go(func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			o.handle(ctx, c.(*net.TCPConn))
		})
	}
}

func (o *origin) note(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
	o.changed.Broadcast()
}

// handle finds out which connection it is, and drives its end.
func (o *origin) handle(ctx context.Context, conn *net.TCPConn) {
	o.note(func() { o.serving++ })
	defer o.note(func() { o.serving-- })
	r := o.s.now.Load()
	_ = conn.SetReadDeadline(time.Now().Add(o.s.patience + o.s.longest))
	buf := make([]byte, greeting)
	n, err := io.ReadFull(conn, buf)
	if err != nil {
		r.stranger(n, err)
		return
	}
	i, err := parseGreeting(buf)
	switch {
	case err != nil:
		o.s.violate(fmt.Sprintf("server: %v", err))
	case i.round == 0:
		o.note(func() { o.probes++ })
	default:
		r.attach(ctx, i, conn)
	}
}

// settle waits until the origin has accepted all connections made to it before the call, and
// serves none any more. For that it connects to itself: accept queues are in order.
func (o *origin) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.s.patience, errors.New("connections that the origin holds are not over"))
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp4", o.address)
	if err != nil {
		return err
	}
	defer c.Close()
	o.mu.Lock()
	before := o.probes
	o.mu.Unlock()
	if _, err := c.Write(id{}.greet()); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { o.note(func() {}) })()
	o.mu.Lock()
	defer o.mu.Unlock()
	for (o.probes == before || o.serving > 0) && ctx.Err() == nil {
		o.changed.Wait()
	}
	return context.Cause(ctx)
}

// settleTime bounds the wait for descriptors to be closed and sums to be right.
const settleTime = 10 * time.Second

// laneSettleTime is that of sessions that have left user space, which linger for 10 s, and up to 40 s if packets come late.
const laneSettleTime = time.Minute

// Bounds of the growth of a proxy's memory: for the remains of each of the connections at
// once, and a generous one for everything else.
const (
	growth     = 256 << 20
	growthEach = 128 << 10
)

// state is the proxy's account, and the resources it is seen to hold.
type state struct {
	*admin.Summary
	rss  int64
	held held
}

// moved are the bytes that it has moved in each direction, whichever way.
func (s *state) moved() [2]int64 {
	return [2]int64{s.Bytes.ClientToEndpoint.All(), s.Bytes.EndpointToClient.All()}
}

// ledger is the accounts of the proxy at moments without connections, and the bytes that must
// have moved until then.
type ledger struct {
	first, last state
}

// An entry is the traffic of one round.
type entry struct {
	N int
	// Exact are connections of which all bytes had to arrive; Torn are the others.
	ExactClient flow
	ExactServer flow
	TornClient  flow
	TornServer  flow
	// Moved and Lost are the proxy's figures.
	MovedToEndpoint int64
	MovedToClient   int64
	Lost            int64
}

func (s *soak) look(ctx context.Context) (st state, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.patience, fmt.Errorf("no summary within %v", s.patience))
	defer cancel()
	status, err := s.proxy.Status(ctx)
	if err != nil {
		return st, err
	}
	if st.rss, err = s.rss(); err != nil {
		return st, err
	}
	st.Summary = &status.Summary
	st.held, err = descriptors(s.proxy.Process.Pid)
	return st, err
}

// firstLooks is how often the proxy is looked at before the first connection.
const firstLooks = 5

// open looks at the proxy before the first connection: several times, because its end of the
// connection that asked for the summary may still be open at a look, which would hide a leak.
func (l *ledger) open(ctx context.Context, s *soak) error {
	for n := range firstLooks {
		st, err := s.look(ctx)
		if err != nil {
			return err
		}
		if n == 0 || st.held.sum() <= l.first.held.sum() {
			l.first = st
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	l.last = l.first
	return nil
}

// close waits until no end holds a connection of the round, then checks the accounts.
func (l *ledger) close(ctx context.Context, s *soak, r *round) error {
	patient, cancel := context.WithTimeout(ctx, s.patience)
	err := s.settle(patient)
	cancel()
	if err == nil {
		err = s.origin.settle(ctx)
	}
	if err != nil {
		if ctx.Err() == nil {
			s.violate(fmt.Sprintf("round %d: %v", r.n, err))
		}
		return context.Cause(ctx)
	}
	r.finish()
	return l.settle(ctx, s, r)
}

// settle waits until the account is in order.
func (l *ledger) settle(ctx context.Context, s *soak, r *round) error {
	end := time.Now().Add(s.settling)
	for pause := time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 250*time.Millisecond) {
		st, err := s.look(ctx)
		if err != nil {
			return fmt.Errorf("round %d: %w", r.n, err)
		}
		booked := l.entry(st, r)
		complaints := append(l.complaints(s, st, r), booked.complaints()...)
		if len(complaints) == 0 {
			l.last = st
			return nil
		}
		if time.Now().After(end) {
			l.last = st
			s.violate(complaints...)
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}

func (l *ledger) entry(st state, r *round) entry {
	return entry{
		N:           int(r.n),
		ExactClient: r.exact[client], ExactServer: r.exact[server], TornClient: r.torn[client], TornServer: r.torn[server],
		MovedToEndpoint: st.moved()[client] - l.last.moved()[client],
		MovedToClient:   st.moved()[server] - l.last.moved()[server],
		Lost:            st.Summary.Lost - l.last.Summary.Lost,
	}
}

// missing are the bytes that were sent and not received.
func (e *entry) missing() int64 {
	return e.TornClient.Sent - e.TornClient.Received + e.TornServer.Sent - e.TornServer.Received
}

// complaints returns the faults in the bytes of a round. If a kernel dropped bytes of a
// connection that was torn down, the proxy may or may not have moved them.
func (e *entry) complaints() (all []string) {
	for _, d := range []struct {
		name        string
		moved       int64
		exact, torn flow
	}{
		{"client to endpoint", e.MovedToEndpoint, e.ExactClient, e.TornClient},
		{"endpoint to client", e.MovedToClient, e.ExactServer, e.TornServer},
	} {
		low, high := d.exact.Received+d.torn.Received, d.exact.Sent+d.torn.Sent
		switch {
		case d.moved >= low && d.moved <= high:
		case low == high:
			all = append(all, fmt.Sprintf("round %d: summary: %s: expected %d bytes, got %d", e.N, d.name, low, d.moved))
		default:
			all = append(all, fmt.Sprintf("round %d: summary: %s: expected from %d bytes, received, to %d, sent, got %d", e.N, d.name, low, high, d.moved))
		}
	}
	if missing := e.missing(); e.Lost < 0 || e.Lost > missing {
		all = append(all, fmt.Sprintf("round %d: summary: lost: expected at most the %d bytes sent and not received, got %d", e.N, missing, e.Lost))
	}
	return all
}

func (l *ledger) complaints(s *soak, st state, r *round) (all []string) {
	sum := st.Summary
	equal := func(what string, want, got int64) {
		if want != got {
			all = append(all, fmt.Sprintf("round %d: %s: expected %d, got %d", r.n, what, want, got))
		}
	}
	// Of some the lossy link has lost the end of the handshake, and a reset came first.
	if n := s.tally.of(opened); !s.lane || sum.Connections.Accepted < n-n/100 || sum.Connections.Accepted > n {
		equal("summary: connections accepted", n, sum.Connections.Accepted)
	}
	equal("summary: connections active", 0, sum.Connections.Active)
	equal("summary: connections refused", 0, sum.Connections.Refused)
	equal("summary: pipes leased", 0, sum.Pipes.Leased)
	equal("connections without a byte that ended in order at the origin", r.silent, r.ended)
	if s.lane {
		for _, fault := range s.laneComplaints(sum.Lane) {
			all = append(all, fmt.Sprintf("round %d: %s", r.n, fault))
		}
	}
	for _, leak := range l.first.held.leaks(st.held, sum.Pipes.Idle-l.first.Summary.Pipes.Idle) {
		all = append(all, fmt.Sprintf("round %d: %s", r.n, leak))
	}
	if most := l.first.rss + growth + int64(s.connections)*growthEach; st.rss > most {
		all = append(all, fmt.Sprintf("round %d: memory of the proxy (RssAnon): expected at most %d bytes, got %d", r.n, most, st.rss))
	}
	return all
}

// watch asks the proxy for summaries now and then while it is busy, until watching
// ends. No request is under way when it returns: a late answer would be taken for the
// next.
func (s *soak) watch(ctx, watching context.Context, r *round) {
	times := rand.New(rand.NewPCG(s.seed, uint64(r.n)))
	last := s.ledger.last
	for {
		select {
		case <-watching.Done():
			return
		case <-time.After(time.Duration(200+times.IntN(1000)) * time.Millisecond):
		}
		st, err := s.look(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.violate(fmt.Sprintf("round %d: %v", r.n, err))
			}
			return
		}
		s.tally.count(summaries)
		if wrong := s.doubts(last, st, r); len(wrong) > 0 {
			s.violate(wrong...)
		}
		last = st
	}
}

// doubts returns the figures that are impossible, even while connections come and go.
func (s *soak) doubts(before, now state, r *round) (all []string) {
	a, b := now.Summary, before.Summary
	for _, d := range []struct {
		what      string
		low, n, h int64
	}{
		{"connections accepted", b.Connections.Accepted, a.Connections.Accepted, s.tally.dialed.Load()},
		{"connections active", 0, a.Connections.Active, a.Connections.Accepted},
		{"connections refused", 0, a.Connections.Refused, 0},
		{"client to endpoint", before.moved()[client], now.moved()[client], s.tally.offered[client].Load()},
		{"endpoint to client", before.moved()[server], now.moved()[server], s.tally.offered[server].Load()},
		{"pipes leased", 0, a.Pipes.Leased, 2 * a.Connections.Accepted},
	} {
		if d.n < d.low || d.n > d.h {
			all = append(all, fmt.Sprintf("round %d: summary while busy: %s: expected from %d to %d, got %d", r.n, d.what, d.low, d.h, d.n))
		}
	}
	return all
}

const (
	pipes = "pipe"
	// spare is the file descriptor reserve, which a proxy keeps open for when other
	// descriptors are short: some of them, however many connections there were.
	spare = os.DevNull
)

// mostSpares is how many more spares there may be than before.
func mostSpares() int { return 8 + 4*runtime.NumCPU() }

// held are open descriptors, counted by kind: "socket", "pipe", "anon_inode:[eventpoll]", or a
// path.
type held map[string]int

func descriptors(pid int) (held, error) {
	h, dir := make(held), fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // closed since
		}
		if err != nil {
			return nil, err
		}
		if kind, _, numbered := strings.Cut(to, ":["); numbered && kind != "anon_inode" {
			to = kind
		}
		h[to]++
	}
	return h, nil
}

func (h held) sum() (n int) {
	for _, m := range h {
		n += m
	}
	return n
}

// leaks says where now differs from before, in words; idle pipes are so many more
// than before.
func (h held) leaks(now held, idle int64) (all []string) {
	kinds := maps.Clone(h)
	maps.Copy(kinds, now)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		want, got := int64(h[kind]), int64(now[kind])
		switch {
		case kind == spare && got <= want+int64(mostSpares()):
			continue
		case kind == pipes:
			want += 2 * idle
		}
		if want != got {
			all = append(all, fmt.Sprintf("descriptors of the proxy, %s: expected %d, got %d", kind, want, got))
		}
	}
	return all
}

// linkRate is 1 % of all packets each. No sender repeats a reset that is lost.
var linkRate = lossy.Rate{Lose: 100, Twice: 100, Late: 100, SpareResets: true}

// leaves reports whether a connection is made to the listener whose sessions leave user space: every second one is.
func (s *soak) leaves(i id) bool { return s.lane && i.n&2 == 0 } // the last bit is the ends' own, see sendEnd

// probes is how many seconds are between keepalive probes of all ends. An endpoint that lacks the bytes before a reset takes
// the reset for none of its connection's (RFC 5961), and challenges it once: if that is lost, too, it learns of the
// reset by a probe or never. Without a lane the loopback loses nothing.
func (s *soak) probes() int {
	if s.lane {
		return 1
	}
	return 0
}

func (s *soak) address(i id) string {
	if !s.lane || s.leaves(i) {
		return s.at[0]
	}
	return s.at[1]
}

// laneComplaints returns the faults in a lane without connections.
func (s *soak) laneComplaints(l *admin.Lane) (all []string) {
	if l == nil {
		return []string{"summary: expected a lane, got none"}
	}
	if l.Active != 0 || l.Failed != 0 {
		all = append(all, fmt.Sprintf("summary: lane: expected no session, and all closed in silence, got %d sessions, and %d sockets that were not", l.Active, l.Failed))
	}
	if len(l.Unrestored) != 0 {
		all = append(all, fmt.Sprintf("summary: lane: expected all sessions to come back that were to, got %v", l.Unrestored))
	}
	if n := s.tally.of(throughLane); n >= manyThroughLane && l.Left == 0 {
		all = append(all, fmt.Sprintf("summary: lane: expected sessions to leave user space, none of %d has", n))
	}
	return all
}

// manyThroughLane are so many connections that one of them at least lasts for long enough to leave.
const manyThroughLane = 200

// Bounds of the time for which the lane is on, and off, with Messages.
const (
	longestOn  = 1500 * time.Millisecond
	longestOff = 400 * time.Millisecond
)

// flips has the sessions that have left user space come back and leave again, at random times, until the round is over. The
// lane is on when it returns.
func (s *soak) flips(ctx, round context.Context, n uint32) {
	times := rand.New(rand.NewPCG(s.seed, uint64(n)<<32))
	for on := true; ; {
		wait := longestOff
		if on {
			wait = longestOn
		}
		select {
		case <-round.Done():
			if on {
				return
			}
		case <-time.After(time.Duration(times.Int64N(int64(wait)))):
		}
		on = !on
		if err := s.flip(ctx, on); err != nil {
			if ctx.Err() == nil {
				s.violate(fmt.Sprintf("round %d: %v", n, err))
			}
			return
		}
	}
}

func (s *soak) flip(ctx context.Context, on bool) error {
	changed, err := s.proxy.SwitchLane(ctx, on)
	if err == nil && !on {
		changed, err = s.proxy.ReturnLane(ctx)
	}
	want := admin.LaneOff
	if on {
		want = admin.LaneOn
	}
	switch {
	case err != nil:
		return err
	case changed.State != want || changed.Reset != 0:
		return fmt.Errorf("the lane switched %s: expected no session to be reset, got %+v", want, changed)
	}
	s.tally.count(flips)
	return nil
}

// action is something that ends do, and that is counted when it is done.
type action string

const (
	opened        action = "connections opened"
	silentClients action = "clients that sent nothing"
	halfCloses    action = "half-closes with bytes to come from the other end"
	closedFirst   action = "ends closed once the other had ended, without a half-close"
	quietResets   action = "resets of connections on which all had arrived"
	clientResets  action = "resets in the middle by the client"
	serverResets  action = "resets in the middle by the server"
	shutResets    action = "resets after one's own end of file"
	left          action = "closes in the middle"
	leftUnread    action = "closes in the middle with bytes unread, which are resets"
	resetsSeen    action = "resets and broken pipes seen at the other end"
	urgentBytes   action = "urgent bytes"
	messages      action = "sends"
	arrivals      action = "sends that have come whole"
	idles         action = "pauses of 50 ms and more"
	bursts        action = "sends of 256 KiB and more after such a pause"
	stalls        action = "stalls: an end does not read"
	tinyBuffers   action = "ends with buffers below 32 KiB"
	summaries     action = "summaries asked for while busy"
	throughLane   action = "connections by the listener whose sessions leave user space"
	flips         action = "times that the lane was switched off or on"
)

// tally counts actions; safe for concurrent use.
type tally struct {
	mu      sync.Mutex
	done    map[action]int64
	dialed  atomic.Int64    // before the connection is made
	offered [2]atomic.Int64 // bytes, before they are sent
}

func (t *tally) count(a action) { t.add(a, 1) }

func (t *tally) add(a action, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done == nil {
		t.done = make(map[action]int64)
	}
	t.done[a] += n
}

func (t *tally) of(a action) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done[a]
}
