package relay

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/loop"
)

// A Driver drives sessions on an event loop, with no goroutine for any of them. It runs the same state machine
// of a direction as the goroutines do. It belongs to the loop's goroutine, as does everything that it drives.
// Make it with [Relay.NewDriver]: the zero Driver cannot be used.
//
// All its directions read through one warm buffer. Bytes that a slow destination leaves behind
// are moved into a slot of just that size, so an idle session holds neither buffer nor pipe,
// and a session with a stuck destination holds only these bytes.
type Driver struct {
	relay   *Relay
	loop    *loop.Loop
	mem     *arena.Local
	own     *arena.Arena // nil if mem was given
	env     environment
	warm    *buffer  // a slot of mem, or from the heap
	work    inFlight // of the direction that is moving now
	spare   []*inFlight
	scratch []byte // empty memory for the bytes of a layer

	marked     []marked // directions with a raised low-water mark
	markedNext []marked // empty; marked's other array
	guard      loop.Timer

	sessions int
	mirrors  int // not ended

	mirrorHeap int // bytes of the heap that mirrors use

	stepping bool         // a direction is being moved, and uses work and warm
	ends     []pendingEnd // sessions that callbacks have cut meanwhile; almost always empty
	hearing  hearing
	bulk     bulkTracker
	offers   offers      // of sessions that a Carrier may have, or has
	plain    engineState // of a new direction
	viewed   *viewed     // nil before the first view

	lingering map[*Driven]*lingering // sessions with a failed side; nil before the first
}

// NewDriver makes a driver of sessions on l. mem keeps bytes that slow destinations have not taken; from now on
// it belongs to the loop. If mem is nil, the driver makes an arena of [arena.DefaultSizePerLocal] bytes. Call
// NewDriver before the loop runs, or on its goroutine. Its error wraps the arena's error, or os.ErrInvalid for
// a nil loop or a zero Relay.
func (r *Relay) NewDriver(l *loop.Loop, mem *arena.Local) (*Driver, error) {
	if err := r.ready(); err != nil {
		return nil, err
	}
	if l == nil {
		return nil, errNilLoop
	}
	d := &Driver{relay: r, loop: l, mem: mem}
	if mem == nil {
		own, err := arena.New(&arena.Config{Locals: 1})
		if err != nil {
			return nil, fmt.Errorf("penstock: relay: driver: %w", err)
		}
		d.own, d.mem = own, own.Local(0)
	}
	d.env = environment{leaser: d, tune: &r.cfg, counts: r.ledger.driver()}
	d.warm = d.slot(bufferSize)
	var begins direction
	d.bind(&begins, nil)
	d.plain = begins.engine()
	return d, nil
}

// Close releases the driver's resources. Call it when all its sessions have ended, on the loop's goroutine or
// when the loop does not run any more. If sessions are left, its error has their number: they are not ended,
// and keep their descriptors.
func (d *Driver) Close() error {
	if d.sessions > 0 {
		return fmt.Errorf("penstock: relay: close driver: %d sessions have not ended; end them first", d.sessions)
	}
	if d.mirrors > 0 {
		return fmt.Errorf("penstock: relay: close driver: %d mirrors have not ended; end them first", d.mirrors)
	}
	d.dropWork()
	d.loop.Disarm(&d.guard)
	d.giveBack(d.warm)
	d.relay.ledger.close(d.env.counts)
	if d.own != nil {
		return d.own.Close()
	}
	return nil
}

// Sessions returns how many sessions the driver drives now.
func (d *Driver) Sessions() int { return d.sessions }

// slot returns a buffer of at least n bytes, from the arena, or from the heap if the arena is full. A direction
// has at most one.
func (d *Driver) slot(n int) *buffer {
	h, err := d.mem.Get(n, arena.Residue)
	if err != nil {
		return &buffer{b: make([]byte, n), unpooled: true}
	}
	b, _ := d.mem.Bytes(h) // it cannot fail: h is new
	return &buffer{b: b, slot: h}
}

// keep returns a buffer for a residue of n bytes.
func (d *Driver) keep(n int) *buffer {
	b := d.slot(n)
	if b.unpooled {
		d.env.counts.note(residueOnHeap)
	} else {
		d.env.counts.note(residueKept)
	}
	return b
}

func (d *Driver) giveBack(b *buffer) {
	if !b.unpooled {
		_ = d.mem.Put(b.slot) // it cannot fail: each buffer is given back once
	}
}

// The driver is the leaser of its directions.

func (d *Driver) buffer(int) (*buffer, error) { return d.warm, nil }

func (d *Driver) returnBuffer(b *buffer) {
	if b != d.warm {
		d.giveBack(b)
	}
}

func (d *Driver) pipe(size int) (splicePipe, error) { return d.relay.pipe(size) }

func (d *Driver) returnPipe(c splicePipe) { d.relay.returnPipe(c) }

// turnBytes and turnMoves bound the bytes and moves of one direction before others have their turn. In a late
// turn a direction makes only one read, and the writes of the bytes read.
const (
	turnBytes = 1 << 20
	turnMoves = 16
)

// step is [direction.step] within this driver's bounds, with work as the lease.
func (d *Driver) step(dir *direction) wait {
	if dir.held == nil {
		dir.held = &d.work
	}
	d.stepping = true
	begin := dir.spliced.Load() + dir.copied.Load()
	w := waitTurn
	for moves := 0; w == waitTurn; moves++ {
		if dir.held.residue() == 0 {
			if dir.held != &d.work {
				d.empty(dir)
			}
			if moves >= turnMoves || dir.spliced.Load()+dir.copied.Load()-begin >= turnBytes || moves > 1 && d.late(dir) {
				d.env.counts.note(turnCut)
				break
			}
			if len(d.ends) > 0 {
				break
			}
		}
		w = dir.move()
	}
	d.letGo(dir)
	d.stepping = false
	return w
}

// late reports whether it is late for a direction that has more to read.
func (d *Driver) late(dir *direction) bool {
	return sessionOf(dir).socketOf(dir).is(readable) && d.loop.Late()
}

// letGo takes the driver's lease from a direction, unless the direction holds bytes.
func (d *Driver) letGo(dir *direction) {
	switch {
	case dir.held.residue() > 0:
		d.stash(dir)
		return
	case dir.held != &d.work:
		d.empty(dir)
	}
	dir.held = nil
}

func (d *Driver) newLease() (own *inFlight) {
	n := len(d.spare)
	if n == 0 {
		return new(inFlight)
	}
	own, d.spare = d.spare[n-1], d.spare[:n-1]
	return own
}

// stash moves bytes that the destination of a direction has not taken from the shared warm buffer to a buffer
// of the direction. Such bytes also remain when a pipe was emptied into the warm buffer because the sink
// refuses to splice.
func (d *Driver) stash(dir *direction) {
	own := dir.held
	if own == &d.work {
		own = d.newLease()
		*own, d.work = d.work, inFlight{}
	}
	if own.buf == d.warm {
		rest := d.warm.b[own.off:own.end]
		own.buf = nil
		if len(rest) > 0 {
			own.buf = d.keep(len(rest))
			own.off, own.end = 0, copy(own.buf.b, rest)
		}
	}
	dir.held = own
}

// empty takes back a direction's own lease after the last byte has gone.
func (d *Driver) empty(dir *direction) {
	own := dir.held
	dir.release()
	*own = inFlight{}
	d.spare = append(d.spare, own)
	dir.held = &d.work
}

// dropWork releases what the driver's lease still has.
func (d *Driver) dropWork() {
	if d.work.pipe != nil {
		d.returnPipe(d.work.pipe)
	}
	d.work = inFlight{}
}

// guardTick is the interval at which sources with a raised mark are checked. A source that has
// moved since the last check is skipped, so a tail below the mark waits at most two ticks, plus
// the delay of the timer.
func (d *Driver) guardTick() time.Duration { return d.relay.cfg.TailDelay / 3 }

// guardMark keeps a direction under guard: its source is read at every tick even without an event, so that no
// tail waits for the mark to be lowered.
func (d *Driver) guardMark(dir *direction) {
	d.marked = append(d.marked, marked{dir, dir.rareState().mark})
	if !d.guard.Armed() {
		d.loop.Arm(&d.guard, d, d.guardTick())
	}
}

// Expired implements [loop.Expirer]: it looks at the sources with raised low-water marks.
func (d *Driver) Expired(*loop.Timer) {
	looked := d.marked
	d.marked = d.markedNext[:0]
	for _, m := range looked {
		if m.inForce() && d.look(m) {
			d.marked = append(d.marked, m)
		}
	}
	clear(looked)
	d.markedNext = looked
	if len(d.marked) > 0 {
		d.loop.Arm(&d.guard, d, d.guardTick())
	}
}

// quietLooks is how many times in a row a source must be found empty before its mark is
// lowered, so that an idle loop can sleep.
const quietLooks = 4

// look reads from a direction's source if no bytes have moved since the last look, and reports whether the mark
// stays raised.
func (d *Driver) look(m marked) bool {
	if moved := m.dir.spliced.Load(); moved != m.mark.seen {
		m.mark.seen, m.mark.quiet = moved, 0
		return true
	}
	s := sessionOf(m.dir)
	s.socketOf(m.dir).set(readable, true)
	s.move()
	if !m.inForce() {
		return false
	}
	if moved := m.dir.spliced.Load(); moved != m.mark.seen {
		m.mark.seen, m.mark.quiet = moved, 0
		return true
	}
	if m.mark.quiet++; m.mark.quiet < quietLooks {
		return true
	}
	m.mark.quiet = 0
	m.dir.lowerMark()
	return false
}

// A bulkTracker counts the sessions that carry bulk: sessions that moved bulkMove bytes in one step of the last
// full period.
type bulkTracker struct {
	period uint16 // number of this period
	ends   int64  // end of this period, loop clock
	now    int    // sessions counted in this period
	last   int    // sessions counted in the period before
}

const (
	censusPeriod = 4 * time.Millisecond
	bulkMove     = 16 << 10
	// With fewBulk bulk sessions or fewer, waiting for their bytes costs more than it saves.
	// Each further session adds gatherShare to the wait.
	fewBulk     = 8
	gatherShare = 25 * time.Microsecond
)

// note counts a session that has moved bulk.
func (c *bulkTracker) note(s *Driven, now int64) {
	if now >= c.ends {
		c.last, c.now = c.now, 0
		if now >= c.ends+int64(censusPeriod) {
			c.last = 0
		}
		c.period, c.ends = c.period+1, now+int64(censusPeriod)
	}
	if s.counted != c.period {
		s.counted = c.period
		c.now++
	}
}

// gather is called when a session has moved bulk. If many sessions do, it lets more bytes gather.
func (d *Driver) gather(s *Driven) {
	d.bulk.note(s, d.loop.Now())
	if n := max(d.bulk.last, d.bulk.now); n >= fewBulk && d.relay.cfg.Gather > 0 {
		d.loop.Gather(min(time.Duration(n)*gatherShare, d.relay.cfg.Gather))
	}
}

// A marked is a direction with a source that had a raised mark. Its session may have ended since, and another
// session may use its memory.
type marked struct {
	dir  *direction
	mark *lowWaterMark
}

func (m marked) inForce() bool {
	o := m.dir.rare.Load()
	return o != nil && o.mark == m.mark && !m.dir.is(ended)
}

// bind sets up a direction.
func (d *Driver) bind(dir *direction, l link) {
	*dir = direction{link: l, pipeSize: defaultPipe}
	dir.chooseMode(d.relay, true)
}

// DriverStats counts what the directions of a [Driver], or of all sessions on goroutines, have decided. The
// counters never fall.
type DriverStats struct {
	Promotions   int64 // a direction changed from copying to splicing
	Demotions    int64 // and back
	PipeGrowths  int64 // a direction chose a larger pipe
	MarksRaised  int64 // a low-water mark was raised (SO_RCVLOWAT)
	MarksLowered int64 // a guard lowered a mark, because too little came
	Rests        int64 // a direction had to wait for a limit of bandwidth

	// On loops alone:
	Residues     int64 // a slot was taken for bytes that a destination had not taken
	HeapResidues int64 // such bytes went to the heap, because the arena was full
	TurnsCut     int64 // a step ended at the bounds of a turn, with more to be moved
}

// A choice is one counter of DriverStats.
type choice uint8

const (
	promoted choice = iota
	demoted
	pipeGrown
	markRaised
	markLowered
	residueKept
	residueOnHeap
	turnCut
	rested
	choices // the number of choices
)

// counts are written by the goroutine of one loop, unless they are shared. Any goroutine may read them. The
// padding keeps them in cache lines of their own.
type counts struct {
	_      [128]byte
	n      [choices]atomic.Int64
	shared bool // several goroutines write them
	_      [128]byte
}

// note counts a choice. A single writer needs only a load and a store.
func (c *counts) note(what choice) {
	if n := &c.n[what]; c.shared {
		n.Add(1)
	} else {
		n.Store(n.Load() + 1)
	}
}

func (c *counts) stats() DriverStats {
	return DriverStats{
		Promotions:   c.n[promoted].Load(),
		Demotions:    c.n[demoted].Load(),
		PipeGrowths:  c.n[pipeGrown].Load(),
		MarksRaised:  c.n[markRaised].Load(),
		MarksLowered: c.n[markLowered].Load(),
		Rests:        c.n[rested].Load(),
		Residues:     c.n[residueKept].Load(),
		HeapResidues: c.n[residueOnHeap].Load(),
		TurnsCut:     c.n[turnCut].Load(),
	}
}

func (s DriverStats) plus(t DriverStats) DriverStats {
	return DriverStats{
		Promotions:   s.Promotions + t.Promotions,
		Demotions:    s.Demotions + t.Demotions,
		PipeGrowths:  s.PipeGrowths + t.PipeGrowths,
		MarksRaised:  s.MarksRaised + t.MarksRaised,
		MarksLowered: s.MarksLowered + t.MarksLowered,
		Rests:        s.Rests + t.Rests,
		Residues:     s.Residues + t.Residues,
		HeapResidues: s.HeapResidues + t.HeapResidues,
		TurnsCut:     s.TurnsCut + t.TurnsCut,
	}
}

// Stats returns the driver's counts. It may be called by any goroutine at any time, even after Close.
func (d *Driver) Stats() DriverStats { return d.env.counts.stats() }

// A ledger has the counts of all drivers of a relay, closed drivers included.
type ledger struct {
	goroutines counts // of all sessions and copies that run on goroutines

	mu     sync.Mutex
	open   []*counts // of the drivers
	closed DriverStats
}

// driver makes counts for a new driver.
func (l *ledger) driver() *counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := new(counts)
	l.open = append(l.open, c)
	return c
}

// close adds a driver's counts to the sums of closed drivers.
func (l *ledger) close(c *counts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.open, c); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
		l.closed = l.closed.plus(c.stats())
	}
}

func (l *ledger) stats() DriverStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := l.closed.plus(l.goroutines.stats())
	for _, c := range l.open {
		sum = sum.plus(c.stats())
	}
	return sum
}
