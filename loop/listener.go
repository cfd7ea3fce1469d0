package loop

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// An Acceptor gets the connections of a [Listener]. Both methods are called on the loop's
// goroutine, and may call methods of the listener.
type Acceptor interface {
	// Accepted is called with a connection: a non-blocking, close-on-exec socket that the acceptor now owns,
	// and the address of the peer. That is an IPv4 address for an IPv4 peer of an IPv6 socket, and not valid
	// for a unix socket. It comes from accept4(2), so it is known even if the connection was reset in the
	// queue, after which getpeername(2) fails with ENOTCONN.
	Accepted(fd int, peer netip.AddrPort)

	// Paused says that accepting has failed and pauses until [ListenerConfig.PauseTime] is over or
	// [Listener.Retry] is called. The usual cause is a lack of descriptors (EMFILE, ENFILE) or memory (ENOBUFS,
	// ENOMEM). Paused is called again after each further failure.
	Paused(err error)
}

// ListenerConfig sets up a [Listener]. Acceptor is required.
type ListenerConfig struct {
	Acceptor Acceptor

	// Before is called before each attempt to accept a connection. It reserves the resources to serve one; if none
	// comes, they are kept for the next. Its error means that no connection is wanted, and is treated like an
	// error of accept4(2). Before may be nil.
	Before func() error

	// PauseTime is how long accepting pauses after a failure; 0 means 100 ms.
	PauseTime time.Duration
}

const defaultPauseTime = 100 * time.Millisecond

var errBlocking = errors.New("the socket is blocking: set O_NONBLOCK first")

// A Listener accepts connections on one loop. The zero Listener belongs to no loop. Several loops may each have
// a Listener for the same socket: the kernel then wakes as few of them as it can (EPOLLEXCLUSIVE,
// epoll_ctl(2)). Everything but Pauses belongs to the loop's goroutine.
//
// In one turn a Listener accepts as many connections as earlier turns suggest. If more are queued, the kernel
// reports them again in the next turn. So it rarely makes a call only to find the queue empty.
type Listener struct {
	loop *Loop
	cfg  ListenerConfig
	fd   int // borrowed from the caller of Listen
	// accept4 is accept4(2), with the kernel's error number unwrapped.
	accept4 func(fd int) (int, netip.AddrPort, error)

	id     ID // stale while the loop does not watch the socket
	batch  batchSize
	timer  Timer // while paused
	paused bool
	held   bool // by Suspend
	closed bool
	pauses atomic.Int64
}

// Listen begins to accept on fd, a listening, non-blocking socket that still belongs to the caller: at the end
// call [Listener.Close], then close fd. Until then fd must not be made blocking, as os.File.Fd does, even by
// another process: duplicates share this property.
func (l *Loop) Listen(fd int, cfg *ListenerConfig) (*Listener, error) {
	if cfg == nil || cfg.Acceptor == nil || cfg.PauseTime < 0 {
		return nil, fmt.Errorf("penstock: loop: listen: %w: write an Acceptor, and a PauseTime of 0 (%v) or more", ErrConfig, defaultPauseTime)
	}
	if err := checkListener(fd); err != nil {
		return nil, fmt.Errorf("penstock: loop: listen: %w", err)
	}
	ln := &Listener{loop: l, cfg: *cfg, fd: fd, accept4: accept, batch: newBatchSize()}
	if ln.cfg.PauseTime == 0 {
		ln.cfg.PauseTime = defaultPauseTime
	}
	if err := ln.wait(); err != nil {
		return nil, err
	}
	return ln, nil
}

// Suspend stops accepting until [Listener.Resume]: connections wait in the kernel's
// queue.
func (ln *Listener) Suspend() {
	ln.held = true
	ln.ignore()
}

// Resume undoes [Listener.Suspend], but does not end a pause.
func (ln *Listener) Resume() {
	ln.held = false
	ln.resume()
}

// Retry ends a pause. Call it after you have given back a resource that accepting may have lacked. It does
// nothing if there is no pause.
func (ln *Listener) Retry() {
	if ln.paused {
		ln.paused = false
		ln.loop.Disarm(&ln.timer)
		ln.resume()
	}
}

// Empty accepts at most max connections from the queue, even while suspended or paused, and returns their
// number. If this is less than max, the queue is empty, or accepting failed, which [Acceptor.Paused] reports.
// Call it before you close a listening socket, which resets the connections in its queue.
func (ln *Listener) Empty(max int) int {
	n, _ := ln.accept(max, func() bool { return !ln.closed && ln.loop != nil })
	return n
}

// Close takes the listener off its loop for good. The caller then closes the descriptor. A second Close does
// nothing.
func (ln *Listener) Close() error {
	if ln.closed {
		return nil
	}
	ln.closed = true
	if ln.loop == nil {
		return nil
	}
	ln.loop.Disarm(&ln.timer)
	return ln.ignore()
}

// Pauses returns how often accepting has failed, as reported to [Acceptor.Paused]. It may be called by any
// goroutine at any time.
func (ln *Listener) Pauses() int64 { return ln.pauses.Load() }

// accepting reports whether nothing keeps the listener from accepting.
func (ln *Listener) accepting() bool { return !ln.held && !ln.paused && !ln.closed }

// wait makes the loop report connections, unless it already does.
func (ln *Listener) wait() error {
	if ln.loop.table.find(ln.id) != nil {
		return nil
	}
	id, err := ln.loop.register(ln.fd, 0, (*queueHandler)(ln), queue)
	ln.id = id
	return err
}

// ignore takes the listening socket off the loop.
func (ln *Listener) ignore() error {
	if ln.loop == nil {
		return nil
	}
	err := ln.loop.Detach(ln.id)
	ln.id = 0
	if errors.Is(err, ErrStale) {
		return nil
	}
	return err
}

func (ln *Listener) resume() {
	if !ln.accepting() || ln.loop == nil {
		return
	}
	if err := ln.wait(); err != nil {
		ln.pause(err)
	}
}

func (ln *Listener) pause(err error) {
	bump(&ln.pauses, 1)
	ln.paused = true
	ln.ignore()
	ln.loop.Arm(&ln.timer, (*pauseEnd)(ln), ln.cfg.PauseTime)
	ln.cfg.Acceptor.Paused(err)
}

// accept accepts at most limit connections, and only while the function may returns true. empty reports
// whether it found the queue empty.
func (ln *Listener) accept(limit int, may func() bool) (n int, empty bool) {
	for n < limit && may() {
		fd, peer, err := ln.next()
		switch {
		case err == nil:
			n++
			ln.cfg.Acceptor.Accepted(fd, peer)
		case err == syscall.EAGAIN:
			return n, true
		case !failedInQueue(err):
			ln.pause(err)
			return n, false
		}
	}
	return n, false
}

// next accepts one connection.
func (ln *Listener) next() (fd int, peer netip.AddrPort, err error) {
	if ln.cfg.Before != nil {
		if err := ln.cfg.Before(); err != nil {
			return -1, peer, err
		}
	}
	fd, peer, err = ln.accept4(ln.fd)
	if err != nil && err != syscall.EAGAIN && !failedInQueue(err) {
		err = os.NewSyscallError("accept4", err)
	}
	return fd, peer, err
}

// queueFailures are errors of connections that failed before they were accepted. They affect no other
// connection ("Error handling" in accept(2)). After EINTR the connection is still in the queue.
var queueFailures = []error{
	syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EPROTO, syscall.ETIMEDOUT, syscall.ENOPROTOOPT,
	syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.EINTR,
}

func failedInQueue(err error) bool { return slices.Contains(queueFailures, err) }

// queueHandler is a Listener as the handler of its queue.
type queueHandler Listener

func (q *queueHandler) Ready(uint8, Events) {
	ln := (*Listener)(q)
	ln.loop.load.accepts(ln.id.slot())
	size := ln.batch.next(ln.loop.counts.turns.Load())
	n, empty := ln.accept(size, ln.accepting)
	ln.batch.learn(n, empty)
}

// pauseEnd is the timer of a Listener's pause.
type pauseEnd Listener

func (p *pauseEnd) Expired(*Timer) { (*Listener)(p).Retry() }

// maxAccept bounds the connections that a listener accepts in one turn, because other handlers wait meanwhile.
const maxAccept = 64

// A batchSize is how many connections a listener accepts at a time: a guess of how many are queued, made without a
// call. It starts at 1, doubles after several turns in a row with a full batch, and falls back when the queue was
// found empty. After each doubling that was a mistake, the next doubling needs more such turns.
type batchSize struct {
	size  int
	full  int   // turns in a row with a full batch
	need  int   // such turns until it doubles
	grown bool  // it has doubled, and the next batch shows whether that was right
	last  int64 // turn
}

const (
	minNeed = 2
	maxNeed = 64
)

func newBatchSize() batchSize { return batchSize{size: 1, need: minNeed} }

// next returns the size for a turn with connections in the queue.
func (b *batchSize) next(turn int64) int {
	if turn != b.last+1 {
		b.size, b.full, b.grown = 1, 0, false // the queue was empty meanwhile
	}
	b.last = turn
	return b.size
}

// learn records the result of a batch.
func (b *batchSize) learn(n int, empty bool) {
	switch {
	case empty:
		b.size, b.full, b.need, b.grown = max(n, 1), 0, min(b.need*2, maxNeed), false
	case n == b.size:
		if b.grown {
			b.need, b.grown = max(b.need/2, minNeed), false
		}
		if b.full++; b.full >= b.need && b.size < maxAccept {
			b.size, b.full, b.grown = min(b.size*2, maxAccept), 0, true
		}
	}
}
