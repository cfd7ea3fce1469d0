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

// mailboxSize is how many functions may wait in the ring. More wait in a list.
const mailboxSize = 1024

// A mailbox is the functions that other goroutines have posted to the loop. Functions must
// be in memory that Go's collector sees: they wait in a table, and a ring carries their
// indexes. The ring knows whether the loop sleeps and has to be woken (package evring
// explains why no wake-up is lost).
//
// A function without a free place goes into a list, and so do all later ones until the list is
// empty: the functions of one goroutine keep their order. The list's turn comes when all posts that
// were begun have been seen on the ring.
type mailbox struct {
	ring   *evring.Ring // owned; its consumer is the loop
	table  [mailboxSize]place
	begun  atomic.Uint64 // posts that went for the table
	called atomic.Uint64 // posts that have come out of it; written by the loop

	overflowed atomic.Bool // there is something in the list
	mu         sync.Mutex  // guards the following fields
	list       []func()
	closed     bool

	// The loop's own.
	pop   func(event []byte) // m.receive, made once
	batch []func()           // out of the ring, to be called
	spare []func()           // the other list, empty
	seen  uint64             // begun, when the ring was last found empty
}

// A place is where a function waits. It belongs to the poster, which sets used, until its
// index is on the ring, and then to the loop, which clears used.
type place struct {
	f    func()
	used atomic.Bool
}

// probes is how many places a post tries. Places are taken in turn, so if none of these
// is free, the table is full or nearly full.
const probes = 8

// Post makes the loop's goroutine call f, after earlier posts of the same goroutine. It may
// be called by any goroutine, the loop's own included; it never blocks for long. f is dropped if
// the loop never runs again. The error is ErrClosed, or wraps os.ErrInvalid if f is nil.
func (l *Loop) Post(f func()) error {
	if f == nil {
		return fmt.Errorf("penstock: loop: post: no function: %w", os.ErrInvalid)
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
	// There is a slot for each place, so that a push that found the ring full has
	// lost to others again and again.
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

// take takes a place of the table, if one is free. Otherwise the post is begun anyway:
// the caller takes that back.
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

// noPlace goes on with a post that has found no place.
func (m *mailbox) noPlace(f func()) error {
	m.begun.Add(^uint64(0))
	return m.postList(f, true)
}

// postList puts f into the list. The write to the eventfd makes the next wait of the loop
// return, whether it sleeps already or not. A goroutine that has begun a post and given it up
// writes too: the loop may have seen the list before, and left it for later.
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

// any reports whether there may be something to deliver. A post that has begun and is not on the
// ring yet counts only once. After that the post has to wake the loop, so that the loop does not
// spin while a poster is delayed.
func (m *mailbox) any() bool { return m.begun.Load() != m.seen }

// sleep says that the loop is about to block, and reports whether it may.
func (m *mailbox) sleep() bool {
	if m.ring.Sleep() {
		return true
	}
	m.awake()
	return false
}

// awake ends the sleep. The eventfd is never read: each write is an edge.
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

// deliverRing calls the functions on the ring. Places and slots are free again before the
// functions are called, which may post.
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

// deliverList calls the functions in the list, unless an earlier poster has a place and is not
// on the ring yet, which the ring will report.
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
