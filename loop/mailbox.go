package loop

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/penstock/penstock/evring"
)

// mailboxSize is how many functions may wait on the ring. Further ones wait in a list.
const mailboxSize = 1024

// A mailbox holds the functions that other goroutines have posted to the loop. They wait in a table, where Go's
// collector sees them, and a ring carries their indexes. The ring knows whether the loop sleeps and has to be
// woken (package evring explains why no wake-up is lost).
//
// A function that finds no free place goes into a list, and so do all later ones until the list is empty: so
// the functions of one goroutine keep their order. The loop takes the list when all posts that were begun have
// come out of the ring.
type mailbox struct {
	ring   *evring.Ring // owned; its consumer is the loop
	table  [mailboxSize]place
	begun  atomic.Uint64 // posts that looked for a place in the table
	called atomic.Uint64 // posts that have come out of the table; the loop writes it

	overflowed atomic.Bool // the list has functions
	mu         sync.Mutex  // guards the following fields
	list       []func()
	closed     bool

	// Only the loop uses these:
	pop   func(event []byte) // m.receive, made once
	batch []func()           // functions out of the ring, to be called
	spare []func()           // empty; list's other array
	seen  uint64             // begun, when the ring was last emptied
}

// A place is where a function waits. It belongs to the poster, which sets used, until its index is on the ring,
// and then to the loop, which clears used.
type place struct {
	f    func()
	used atomic.Bool
}

// probes is how many places a post tries. Places are taken in turn, so if none of these is free, the table is
// full or nearly full.
const probes = 8

// Post makes the loop's goroutine call f, after earlier posts of the same goroutine. It may be called by any
// goroutine, including the loop's; it never blocks for long. f is dropped if the loop never runs again. The
// error is ErrClosed, or wraps os.ErrInvalid if f is nil.
func (l *Loop) Post(f func()) error {
	if f == nil {
		return fmt.Errorf("penstock: loop: post: f is nil: %w", os.ErrInvalid)
	}
	if !l.usable.Load() {
		return ErrClosed
	}
	return l.mail.post(f)
}

func (m *mailbox) open() (err error) {
	m.ring, err = evring.New(&evring.Config{Slots: mailboxSize, Name: "loop"})
	m.pop = m.receive
	return err
}

func (m *mailbox) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed, m.list = true, nil
	return m.ring.Close()
}

func (m *mailbox) post(f func()) error {
	if m.overflowed.Load() {
		return m.postList(f, false)
	}
	i, ok := m.take()
	if !ok {
		return m.noPlace(f)
	}
	m.table[i].f = f
	event := [4]byte{byte(i), byte(i >> 8)}
	// The ring has a slot for each place, so a push finds it full only because others have been faster again
	// and again.
	err := m.ring.Push(event[:])
	for err == evring.ErrFull {
		runtime.Gosched()
		err = m.ring.Push(event[:])
	}
	if errors.Is(err, evring.ErrClosed) {
		return ErrClosed
	} else if err != nil {
		return fmt.Errorf("penstock: loop: post: %w", err)
	}
	return nil
}

// take takes a free place of the table. If it finds none, the caller has to take back that the post has begun.
func (m *mailbox) take() (i uint64, ok bool) {
	begun := m.begun.Add(1)
	for n := range uint64(probes) {
		i = (begun + n) % mailboxSize
		if m.table[i].used.CompareAndSwap(false, true) {
			return i, true
		}
	}
	return 0, false
}

// noPlace continues a post that has found no place.
func (m *mailbox) noPlace(f func()) error {
	m.begun.Add(^uint64(0))
	return m.postList(f, true)
}

// postList puts f into the list. The write to the eventfd makes the loop's present or next wait return. A
// goroutine that has begun a post and given it up writes too, because the loop may already have seen the list,
// and left it for later.
func (m *mailbox) postList(f func(), gaveUp bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	m.list = append(m.list, f)
	if len(m.list) == 1 || gaveUp {
		m.overflowed.Store(true)
		wake(m.ring.Eventfd())
	}
	return nil
}

// any reports whether there may be something to deliver. A post that was begun and is not on the ring yet counts
// only once, so that the loop does not spin while a poster is delayed; the post then wakes the loop.
func (m *mailbox) any() bool { return m.begun.Load() != m.seen }

// sleep announces that the loop is about to block, and reports whether it may.
func (m *mailbox) sleep() bool {
	if m.ring.Sleep() {
		return true
	}
	m.awake()
	return false
}

// awake ends the sleep. The eventfd is never read, because each write is an edge.
func (m *mailbox) awake() { m.ring.Awake(false) }

// deliver calls the functions posted so far.
func (m *mailbox) deliver() error {
	m.seen = m.begun.Load()
	if m.seen != m.called.Load() {
		if err := m.deliverRing(); err != nil {
			return err
		}
	}
	if m.overflowed.Load() {
		m.deliverList()
	}
	return nil
}

// deliverRing calls the functions on the ring. Their places and slots are free before they are called, because
// they may post.
func (m *mailbox) deliverRing() error {
	n, err := m.ring.Drain(0, m.pop)
	m.called.Store(m.called.Load() + uint64(n))
	for _, f := range m.batch {
		f()
	}
	clear(m.batch)
	m.batch = m.batch[:0]
	if err != nil {
		return fmt.Errorf("penstock: loop: mailbox: %w", err)
	}
	return nil
}

// receive takes a function out of the table.
func (m *mailbox) receive(event []byte) {
	p := &m.table[(int(event[0])|int(event[1])<<8)%mailboxSize]
	m.batch = append(m.batch, p.f)
	p.f = nil
	p.used.Store(false)
}

// deliverList calls the functions in the list, unless an earlier poster has a place but is not on the ring yet;
// the ring will report it.
func (m *mailbox) deliverList() {
	m.mu.Lock()
	if m.begun.Load() != m.called.Load() {
		m.mu.Unlock()
		return
	}
	list := m.list
	m.list = m.spare[:0]
	m.overflowed.Store(false)
	m.mu.Unlock()
	for _, f := range list {
		f()
	}
	clear(list)
	m.spare = list
}
