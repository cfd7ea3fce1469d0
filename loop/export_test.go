package loop

import (
	"net/netip"
	"time"
)

// Turn makes one turn of a loop that does not run.
func (l *Loop) Turn() error { return l.turn() }

// Begin is what comes before the turns of Run, and what it returns comes after them.
func (l *Loop) Begin() (end func()) {
	l.begin()
	return l.load.leave
}

// GiveWay returns what a loop does that is always at work and gives way.
func GiveWay() (giveWay func(), end func() error) {
	o := new(others)
	runningLoops.Add(1)
	giveWay = func() {
		o.worked = yieldTime
		o.run(yieldTime)
	}
	return giveWay, func() error { runningLoops.Add(-1); return o.knock.close() }
}

// Accept gives a server an accepted connection.
func (s *Server) Accept(l *Loop, fd int) {
	(&serving{Server: s, loop: l}).Accepted(fd, netip.AddrPort{})
}

// FD returns the descriptor, which the connection owns.
func (c *Conn) FD() int { return int(c.fd) }

// LooksUp reports whether a goroutine connects for a dial.
func (d *Dial) LooksUp() bool { return d.retry != nil && d.retry.lookup != nil }

// Direct reports whether the last turn did not look for events before it blocked.
func (l *Loop) Direct() bool { return l.direct }

// Prompt is how many turns in a row have to find events at once until a loop looks again, and Futile how many have to look in vain.
const Prompt, Futile = mostPrompt, mostFutile

// LoadWindow is how long a loop looks at what it has to do.
const LoadWindow = time.Duration(loadWindow)

// FollowEvery is how many times a loop sleeps before it looks whether it has moved.
const FollowEvery = followEvery

// A Wheel is a loop's wheel without the loop.
type Wheel struct{ wheel }

// NewWheelBy is NewWheel with a clock, by which turns are bounded.
func NewWheelBy(now int64, clock func() int64) *Wheel {
	w := &Wheel{}
	w.start(now, clock)
	return w
}

// MostTimers and TimersTime bound a turn, and the clock is looked at after so many timers.
const (
	MostTimers = mostTimers
	TimersTime = timersTime
	TimersLook = timersLook
)

func (w *Wheel) Arm(t *Timer, owner Expirer, at int64) {
	t.owner = owner
	w.arm(t, at)
}

func (w *Wheel) Disarm(t *Timer)           { w.disarm(t) }
func (w *Wheel) Advance(now int64)         { w.advance(now) }
func (w *Wheel) UntilNext(now int64) int64 { return w.untilNext(now) }

const WheelTick = wheelTick

// A Table is a loop's table without the loop.
type Table struct{ table }

func NewTable() *Table {
	t := &Table{}
	t.free = noSlot
	return t
}

func (t *Table) Take(fd int, h Handler) ID { return t.take(fd, 0, h) }
func (t *Table) Drop(id ID)                { t.drop(id) }
func (t *Table) Used() int                 { return t.used }

func (t *Table) Find(id ID) (fd int, h Handler, ok bool) {
	s := t.find(id)
	if s == nil {
		return 0, nil, false
	}
	return int(s.fd), s.handler, true
}

// SetGeneration sets that of a registration in force, and returns its new ID.
func (t *Table) SetGeneration(id ID, generation uint32) ID {
	t.at(id.slot()).generation = generation
	return newID(id.slot(), generation, id.which())
}

const LastGeneration = 1<<generationBits - 1

// A BatchSize is how many connections a listener accepts at a time.
type BatchSize struct{ batchSize }

func NewBatchSize() *BatchSize { return &BatchSize{newBatchSize()} }

func (b *BatchSize) Next(turn int64) int     { return b.next(turn) }
func (b *BatchSize) Learn(n int, empty bool) { b.learn(n, empty) }

const MaxAccept = maxAccept

// SetAccept has a listener accept by f.
func (ln *Listener) SetAccept(f func(fd int) (int, netip.AddrPort, error)) { ln.accept4 = f }

// HoldUp begins to post f, and finishes when told.
func (l *Loop) HoldUp(f func()) (finish func() error) {
	i, ok := l.mail.take()
	if !ok {
		panic("the table is full")
	}
	return func() error {
		l.mail.table[i].f = f
		return l.mail.ring.Push([]byte{byte(i), byte(i >> 8), 0, 0})
	}
}

// HoldUpFull begins to post f while the table is full, and finishes when told.
func (l *Loop) HoldUpFull(f func()) (finish func() error) {
	if _, ok := l.mail.take(); ok {
		panic("the table is not full")
	}
	return func() error { return l.mail.noPlace(f) }
}

// MailboxSize is how many functions wait before there is a list.
const MailboxSize = mailboxSize

// Overflowed reports whether there is something in the list.
func (l *Loop) Overflowed() bool { return l.mail.overflowed.Load() }
