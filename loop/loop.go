package loop

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/closed"
)

// ErrStale is returned for a stale [ID]: its registration has ended.
var ErrStale = errors.New("penstock: loop: the registration has ended")

// ErrClosed is returned by a closed loop. It matches os.ErrClosed.
var ErrClosed error = closed.Error("penstock: loop: the loop is closed, or was not made by New")

// ErrConfig is wrapped by the error of [New] when a field of [Config] is invalid.
var ErrConfig = errors.New("invalid loop configuration")

// Config sets up a [Loop]. The zero value, and a nil *Config, mean the defaults.
type Config struct {
	// BusyPoll is how long an idle loop polls for events before it sleeps, at most a second; 0 means that it
	// sleeps at once. It saves waking a thread for an event, and uses up to a whole CPU for this time after
	// each event.
	BusyPoll time.Duration

	// KeepPolicy makes the loop leave its thread's scheduling policy alone. Otherwise the loop changes the policy
	// from SCHED_OTHER to SCHED_BATCH, see sched(7), while it works for a tenth of the time and serves three
	// descriptors or more, not counting listeners. Then the thread does not take a busy CPU from another thread.
	// It waits, for up to a time slice, and then has more to do at once, which saves much CPU on a busy machine. A
	// thread that has any other policy when Run is called keeps it. A process or thread inherits SCHED_BATCH from
	// the thread that starts it (sched(7)).
	KeepPolicy bool

	// TurnCPU measures the CPU time of turns, for Stats.Overruns, by six system calls a turn. It misses a turn in
	// which the loop moves to another thread.
	TurnCPU bool

	// Now is the clock: nanoseconds that never go backwards. Nil means the system's clock. A caller that
	// advances a clock of its own wakes the loop with [Loop.Post].
	Now func() int64
}

// maxBusyPoll is the most that [Config.BusyPoll] may be.
const maxBusyPoll = time.Second

// batch is how many events one epoll_wait returns at most.
const batch = 256

// A Loop waits for the events of many descriptors and calls their handlers. Make
// it with [New]: the zero Loop is a closed one.
type Loop struct {
	poller  poller // owns the epoll instance
	table   table
	again   []ID // handlers to call in the next turn
	spare   []ID // empty; again's other array
	wheel   wheel
	mail    mailbox // owns a memfd and an eventfd
	clock   func() int64
	spin    int64 // Config.BusyPoll in ns
	turnCPU bool
	now     int64 // clock at the beginning of this turn
	behind  int64 // see Behind
	yield   int64 // clock when other goroutines last had their turn
	gather  int64 // the least delay of the next turn that a handler asked for, ns

	gathering int // how many handlers asked for it in this turn
	stop      bool
	slept     bool  // slept since this turn began
	direct    bool  // blocked without looking for events first
	futile    uint8 // see mostFutile
	prompt    uint8 // see mostPrompt
	asleep    int64 // clock when it last went to sleep
	counts    counts
	load      load
	others    others // owns an eventfd

	running atomic.Bool
	usable  atomic.Bool // from New to Close
}

// New makes a loop. Call [Loop.Run], and [Loop.Close] after that. The error wraps [ErrConfig], or the error of
// the kernel, or on systems without epoll errors.ErrUnsupported.
func New(cfg *Config) (*Loop, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	if cfg.BusyPoll < 0 || cfg.BusyPoll > maxBusyPoll {
		return nil, fmt.Errorf("penstock: loop: %w: BusyPoll is %v; write 0 for none, at most %v", ErrConfig, cfg.BusyPoll, maxBusyPoll)
	}
	l := &Loop{clock: cfg.Now, spin: int64(cfg.BusyPoll)}
	if l.clock == nil {
		l.clock = monotonic
	}
	l.table.free, l.load.keep, l.turnCPU = noSlot, cfg.KeepPolicy, cfg.TurnCPU
	l.now, l.gather = l.clock(), maxGather
	l.wheel.start(l.now, l.clock)
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("penstock: loop: %w", err)
	}
	return l, nil
}

var start = time.Now()

// monotonic is the system's clock.
func monotonic() int64 { return int64(time.Since(start)) + 1 }

func (l *Loop) open() error {
	if err := l.poller.open(); err != nil {
		return err
	}
	if err := l.mail.open(); err != nil {
		l.poller.close()
		return err
	}
	l.usable.Store(true)
	if err := l.poller.watch(l.mail.ring.Eventfd()); err != nil {
		l.Close()
		return err
	}
	return nil
}

// Close closes the loop's own descriptors. Added descriptors still belong to their owners. Posted functions
// that have not run are dropped. It must not be called while Run runs. A second Close does nothing.
func (l *Loop) Close() error {
	if !l.usable.Swap(false) {
		return nil
	}
	return errors.Join(l.mail.close(), l.poller.close(), l.others.knock.close())
}

// Now returns the clock at the beginning of this turn of the loop, in nanoseconds of [Config.Now], or the
// present time of the clock while the loop does not run.
func (l *Loop) Now() int64 {
	switch {
	case l.running.Load():
		return l.now
	case l.clock == nil: // the zero Loop
		return 0
	}
	return l.clock()
}

// Behind returns how long the events of this turn may have waited for the loop: the time since the previous turn
// began, or 0 if the loop has slept since. It does not include the time that a sleeping loop waited for a CPU. It
// belongs to the loop's goroutine.
func (l *Loop) Behind() time.Duration { return time.Duration(l.behind) }

// Add reports events of fd to h. fd must be non-blocking and still belongs to the caller: call [Loop.Drop],
// then close it. If fd is ready already, that is reported too. The error wraps epoll_ctl(2)'s: EPERM for a
// descriptor that epoll cannot wait for, such as a regular file, EEXIST for a descriptor that was added before.
// If h is nil it wraps os.ErrInvalid.
func (l *Loop) Add(fd int, which uint8, h Handler) (ID, error) {
	if h == nil {
		return 0, fmt.Errorf("penstock: loop: add descriptor %d: the Handler is nil: %w", fd, os.ErrInvalid)
	}
	return l.register(fd, which, h, edges)
}

// register is Add for the events of interest.
func (l *Loop) register(fd int, which uint8, h Handler, interest uint32) (ID, error) {
	if !l.usable.Load() {
		return 0, ErrClosed
	}
	id := l.table.take(fd, which, h)
	if err := l.poller.add(fd, id, interest); err != nil {
		l.table.drop(id)
		return 0, fmt.Errorf("penstock: loop: %w", os.NewSyscallError("epoll_ctl", err))
	}
	return id, nil
}

// Hand makes h the handler of a registration. Events that were reported before are not repeated. It does
// nothing if the ID is stale.
func (l *Loop) Hand(id ID, h Handler) {
	if s := l.table.find(id); s != nil {
		s.handler = h
	}
}

// Drop ends a registration: its handler is not called any more, not even for events that have been collected
// already. Only close(2) removes the descriptor from the kernel's list, so the caller must close it next, with
// all its duplicates. For a descriptor that stays open use [Loop.Detach]. Drop does nothing if the ID is stale.
func (l *Loop) Drop(id ID) {
	if l.table.find(id) != nil {
		l.table.drop(id)
	}
}

// Detach is Drop for a descriptor that stays open.
func (l *Loop) Detach(id ID) error {
	s := l.table.find(id)
	if s == nil {
		return ErrStale
	}
	fd := int(s.fd)
	l.table.drop(id)
	if err := l.poller.remove(fd); err != nil {
		return fmt.Errorf("penstock: loop: %w", os.NewSyscallError("epoll_ctl", err))
	}
	return nil
}

// Again calls the handler of a registration once more, with no events, after the
// handlers of all other ready descriptors. It does nothing if the ID is stale.
func (l *Loop) Again(id ID) { l.again = append(l.again, id) }

// lateTime is how long a turn lasts before it is late.
const lateTime = int64(2 * time.Millisecond)

// Late reports whether the turn has already taken two milliseconds. Then a handler should do
// as little as it can and call Again for the rest, because all other ready handlers wait.
// While the loop does not run there is no turn, and nothing is late.
func (l *Loop) Late() bool { return l.running.Load() && l.clock()-l.now > lateTime }

// maxGather bounds the delay of Gather.
const maxGather = int64(time.Millisecond)

// Gather says that the running handler would rather be called later, with more to do. A handler calls it at most
// once in a call. If all handlers of a turn have called it, the loop sleeps for the shortest of their times, at
// most a millisecond, before it collects events again. Events, mail and timers that come meanwhile wait until it
// wakes.
func (l *Loop) Gather(d time.Duration) {
	l.gathering++
	l.gather = min(l.gather, int64(d))
}

// Stop makes Run return at the end of the current turn; a Run that is called later returns after its first turn.
// It may be called by any goroutine at any time.
func (l *Loop) Stop() {
	_ = l.Post(func() { l.stop = true }) // fails if the loop is closed
}

// Events are the kinds of readiness of a descriptor, as bits of epoll_ctl(2).
type Events uint32

// A Handler gets the events of a descriptor.
type Handler interface {
	// Ready is called on the loop's goroutine. The parameter which has the value passed to [Loop.Add], so that
	// one handler can serve several descriptors. No events mean that [Loop.Again] asked for the call.
	Ready(which uint8, events Events)
}

// An ID names one registration of a descriptor with a loop: a slot of its table, and the slot's generation. An
// ID is stale once its registration has ended: it is refused, even if the slot or the descriptor's number is in
// use again. The zero ID is always stale.
type ID uint64

func newID(slot uint32, generation uint32, which uint8) ID {
	return ID(which)<<(32+generationBits) | ID(generation)<<32 | ID(slot)
}

func (id ID) slot() uint32       { return uint32(id) }
func (id ID) generation() uint32 { return uint32(id>>32) & (1<<generationBits - 1) }
func (id ID) which() uint8       { return uint8(id >> (32 + generationBits)) }

// A slot holds the handler of a descriptor.
type slot struct {
	handler    Handler // nil while the slot is free
	fd         int32   // borrowed from the caller of Add; in a free slot, the number of the next free slot
	generation uint32  // of the present registration, or the next; never 0
}

// generationBits is the number of bits for a generation in the 64 bits that epoll keeps for us, beside the slot
// and the value which. A stale ID could be mistaken for another only if a slot were used again 16 million times
// within one batch of events.
const generationBits = 24

const (
	// tableChunk slots are six of the runtime's pages. The runtime would round a chunk of less than 32 KiB up
	// to a size class, by up to an eighth.
	tableChunk = 2048
	noSlot     = -1
)

// A table holds the slots of a loop. It grows by chunks, so that growing copies nothing. The slot that was
// freed last is used first.
type table struct {
	chunks []*[tableChunk]slot
	free   int32 // first free slot, or noSlot
	used   int
}

func (t *table) at(i uint32) *slot {
	if int(i/tableChunk) >= len(t.chunks) {
		return nil
	}
	return &t.chunks[i/tableChunk][i%tableChunk]
}

// take takes a free slot.
func (t *table) take(fd int, which uint8, h Handler) ID {
	if t.free == noSlot {
		t.grow()
	}
	i := uint32(t.free)
	s := t.at(i)
	t.free = s.fd
	s.handler, s.fd = h, int32(fd)
	t.used++
	return newID(i, s.generation, which)
}

func (t *table) grow() {
	first := int32(len(t.chunks) * tableChunk)
	chunk := new([tableChunk]slot)
	for i := range chunk {
		chunk[i] = slot{fd: first + int32(i) + 1, generation: 1}
	}
	chunk[tableChunk-1].fd = noSlot
	t.chunks = append(t.chunks, chunk)
	t.free = first
}

// find returns the slot of a registration, or nil if the ID is stale.
func (t *table) find(id ID) *slot {
	s := t.at(id.slot())
	if s == nil || s.handler == nil || s.generation != id.generation() {
		return nil
	}
	return s
}

// drop frees the slot of a registration.
func (t *table) drop(id ID) {
	s := t.at(id.slot())
	s.handler, s.fd = nil, t.free
	if s.generation = (s.generation + 1) & (1<<generationBits - 1); s.generation == 0 {
		s.generation = 1
	}
	t.free = int32(id.slot())
	t.used--
}

// handlers yields the handlers of all registrations. Registrations may be dropped meanwhile.
func (t *table) handlers() iter.Seq[Handler] {
	return func(yield func(Handler) bool) {
		for _, chunk := range t.chunks {
			for i := range chunk {
				if h := chunk[i].handler; h != nil && !yield(h) {
					return
				}
			}
		}
	}
}

// A Group is several loops that run side by side, usually one for each CPU, each on its own goroutine.
type Group struct {
	loops []*Loop // owned
}

// NewGroup makes n loops with the same configuration, or GOMAXPROCS loops if n is 0. It returns the error of
// [New].
func NewGroup(n int, cfg *Config) (*Group, error) {
	if n < 0 {
		return nil, fmt.Errorf("penstock: loop: %w: %d loops; write 0 for GOMAXPROCS loops, or more", ErrConfig, n)
	}
	if n == 0 {
		n = runtime.GOMAXPROCS(0)
	}
	g := &Group{loops: make([]*Loop, 0, n)}
	for range n {
		l, err := New(cfg)
		if err != nil {
			return nil, errors.Join(err, g.Close())
		}
		g.loops = append(g.loops, l)
	}
	return g, nil
}

var errLoopGoexit = errors.New("penstock: loop: a handler has called runtime.Goexit, which ended the loop")

// Loops returns the loops. Do not run or close them one by one, and do not change the slice.
func (g *Group) Loops() []*Loop { return g.loops }

// Run runs the loops until [Group.Stop], or until one of them fails, which stops the others. All of them have
// ended when it returns. A runtime.Goexit in a handler ends its loop, which counts as a failure.
func (g *Group) Run() error {
	errs := make([]error, len(g.loops))
	var running sync.WaitGroup
	for i, l := range g.loops {
		running.Go(func() {
			errs[i] = errLoopGoexit
			defer func() {
				if errs[i] == errLoopGoexit {
					g.Stop()
				}
			}()
			if errs[i] = l.Run(); errs[i] != nil {
				g.Stop()
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// Stop makes Run return, even a Run that is called later. It may be called by any goroutine at any time.
func (g *Group) Stop() {
	for _, l := range g.loops {
		l.Stop()
	}
}

// Close closes the loops. Run must not be running.
func (g *Group) Close() error {
	errs := make([]error, len(g.loops))
	for i, l := range g.loops {
		errs[i] = l.Close()
	}
	return errors.Join(errs...)
}
