package relay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/pool"
)

// A leaser is where a direction leases its resources while bytes are in flight.
type leaser interface {
	// buffer leases a buffer of at least size bytes.
	buffer(size int) (*buffer, error)
	returnBuffer(*buffer)
	// guardMark makes sure that the direction's raised mark is lowered when nothing moves.
	guardMark(*direction)
	// pipe leases an empty pipe of about size bytes.
	pipe(size int) (splicePipe, error)
	returnPipe(splicePipe)
}

// A splicePipe is the part of a *pipe.Pipe that a direction uses.
type splicePipe interface {
	Size() int
	Len() int
	Fill(fd, max int) (int, error)
	FillSocket(fd, max int) (int, error)
	Drain(fd, max int) (int, error)
	DrainSocket(fd, max int) (int, error)
	Read([]byte) (int, error)
}

func (r *Relay) pipe(size int) (splicePipe, error) {
	if r.pipes == nil {
		return nil, pipe.ErrNotSupported
	}
	p, err := r.pipes.Get(size)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (r *Relay) guardMark(d *direction) { r.guard.add(d) }

func (r *Relay) returnPipe(c splicePipe) { r.pipes.Put(c.(*pipe.Pipe)) }

// A direction asks for a pipe of four times the size when its score reaches growAt. A fill that
// finds bytes right after a drain adds followed to the score, and a large fill adds 1.
const (
	growAt   = 16
	followed = 4
	// largeFill is the least that counts as a large fill, whatever the size of the pipe.
	largeFill = 32 << 10
)

// leasePipe leases a pipe for the next fill. It counts a missing pipe once for each series of copied reads.
func (d *direction) leasePipe() bool {
	p, err := d.env().pipe(d.pipeSize.bytes())
	if err != nil && d.pipeSize > defaultPipe {
		d.pipeSize = defaultPipe
		p, err = d.env().pipe(d.pipeSize.bytes())
	}
	if err == nil {
		d.held.pipe = p
		d.set(noPipe, false)
		d.pipeSize = min(d.pipeSize, pipeOf(p.Size()))
		return true
	}
	if !d.is(noPipe) {
		d.set(noPipe, true)
		d.fallback(leaseFallback(err))
	}
	if errors.Is(err, pipe.ErrNotSupported) {
		d.set(pinned, true)
		d.switchTo(copying)
	}
	return false
}

func leaseFallback(err error) Fallback {
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return FallbackDescriptors
	case errors.Is(err, pipe.ErrNotSupported):
		return FallbackUnsupported
	case errors.Is(err, os.ErrClosed):
		return FallbackClosed
	}
	return FallbackBudget
}

// grow asks for a larger pipe if fills follow each other without the source running dry, or if they often fill
// a quarter of the pipe. The present pipe is given back when it is empty. The number of bytes does not show
// whether the pipe was full: 16 segments of 1,448 bytes fill 64 KiB. And a source may run dry after each fill
// only because it keeps in step with us: it is woken by room for one pipe, and wakes us with the bytes of one
// pipe.
func (d *direction) grow(n int) {
	d.set(filledAgain, d.is(filledOnce))
	d.set(filledOnce, true)
	large := n >= max(d.held.pipe.Size()/4, largeFill)
	d.set(largeLast, large)
	switch {
	case d.is(filledAgain):
		d.growScore += followed
	case large:
		d.growScore++
	}
	d.growScore = min(d.growScore, growAt)
	most := d.env().tune.MaxPipeSize
	if d.is(mirrored) { // the mirror's pipe has to take several fills
		most /= mirrorFills
	}
	if larger := min(d.pipeSize+2, pipeOf(most)); d.growScore == growAt && larger > d.pipeSize {
		d.growScore = 0
		d.pipeSize = larger
		d.env().counts.note(pipeGrown)
	}
}

// sourceEmpty notes that the source is empty. If there was a small fill since the source was last empty, the
// pipe is large enough.
func (d *direction) sourceEmpty() {
	if !d.is(filledAgain | largeLast) {
		d.growScore = 0
	}
	d.set(filledOnce|filledAgain, false)
}

// release gives back leases that are empty.
func (d *direction) release() {
	d.releaseBuffer()
	d.releasePipe()
}

func (d *direction) releaseBuffer() {
	if d.held.buf != nil && d.held.off == d.held.end {
		d.env().returnBuffer(d.held.buf)
		d.held.buf, d.held.off, d.held.end = nil, 0, 0
	}
}

func (d *direction) releasePipe() {
	if d.held.pipe != nil && d.held.pipe.Len() == 0 {
		d.env().returnPipe(d.held.pipe)
		d.held.pipe = nil
	}
}

// flush makes the last attempt to deliver, after the driver has stopped. It delivers the residue and, if all is
// set, the bytes that the source still has. It never waits: it ends at the first EAGAIN. all is for a dead
// source: its queue cannot grow; flushMoves bounds it if the source only seems dead.
//
// The direction has ended, and keeps its end: flush passes on no end of file, and counts no failure.
func (d *direction) flush(all bool) {
	wasEnded, reason, failure := d.is(ended), d.reason.Load(), d.failure()
	d.set(ended, false)
	d.unbind()
	for moves := 0; moves < flushMoves && d.mayFlush(all) && d.move() == waitTurn; moves++ {
	}
	d.set(ended, wasEnded)
	d.reason.Store(reason)
	if o := d.rare.Load(); o != nil {
		o.failure = failure
	}
}

// mayFlush reports whether there may be something to deliver.
func (d *direction) mayFlush(all bool) bool {
	return d.residue() > 0 || all && !d.is(eofSeen) && !d.spent()
}

// flushMoves is far more than a receive queue and a pipe take.
const flushMoves = 1 << 14

// abandon gives everything back, and counts the residue as lost; if queued is set, also the bytes in the
// source's receive queue. The pipe's pool closes a pipe that holds bytes.
func (d *direction) abandon(queued bool) {
	n, unread := int64(d.residue()+d.heldBack()), int64(0)
	if queued && !d.is(eofSeen) && !d.spent() {
		unread = int64(d.link.queued())
	}
	if d.mode == rewriting {
		r := d.rareState().rewrite
		r.in += unread + int64(len(r.ahead)) // these have come, too
	}
	d.countLost(n + unread)
	if o := d.rare.Load(); o != nil {
		o.ahead = nil
	}
	if d.held == nil {
		return
	}
	d.held.off, d.held.end = 0, 0
	d.releaseBuffer()
	if d.held.pipe != nil {
		d.env().returnPipe(d.held.pipe)
		d.held.pipe = nil
	}
}

// A buffer is the buffer of one copied read.
type buffer struct {
	b        []byte
	slot     arena.Handle // of a loop's buffer
	unpooled bool         // from the heap, because the pool was closed or the arena full
}

// The pools keep at most this much of idle buffers.
const (
	maxIdleBuffers = 1024
	bufferIdleTime = 10 * time.Second
)

// The sizes of the buffers that directions hold while they wait in a wrapper's Read, besides copyBuffer and
// bufferSize.
const (
	smallBuffer  = 1 << 10
	mediumBuffer = 8 << 10
)

// bufferSizes are the sizes of a relay's buffers, in ascending order.
var bufferSizes = [...]int{smallBuffer, mediumBuffer, copyBuffer, bufferSize}

// openBuffers makes the pools.
func (r *Relay) openBuffers() error {
	for _, size := range bufferSizes {
		p, err := pool.New(pool.Config[*buffer]{
			New:      func(context.Context) (*buffer, error) { return &buffer{b: make([]byte, size)}, nil },
			MaxIdle:  maxIdleBuffers,
			IdleTime: bufferIdleTime,
		})
		if err != nil {
			return errors.Join(fmt.Errorf("penstock: relay: buffers: %w", err), r.closeBuffers())
		}
		r.buffers = append(r.buffers, bufferPool{size, p})
	}
	return nil
}

// A bufferPool has the buffers of one size.
type bufferPool struct {
	size int
	*pool.Pool[*buffer]
}

func (r *Relay) closeBuffers() (err error) {
	for _, p := range r.buffers {
		err = errors.Join(err, p.Close())
	}
	return err
}

// bufferStats is the sum of the pools' statistics.
func (r *Relay) bufferStats() (sum pool.Stats) {
	for _, p := range r.buffers {
		s := p.Stats()
		sum.Made, sum.Closed, sum.Live, sum.Idle = sum.Made+s.Made, sum.Closed+s.Closed, sum.Live+s.Live, sum.Idle+s.Idle
		sum.Hits, sum.Misses, sum.Steals = sum.Hits+s.Hits, sum.Misses+s.Misses, sum.Steals+s.Steals
		sum.Evictions, sum.Discards = sum.Evictions+s.Evictions, sum.Discards+s.Discards
		sum.Refusals, sum.Overflows = sum.Refusals+s.Refusals, sum.Overflows+s.Overflows
	}
	return sum
}

// poolOf returns the pool of the buffers of a size, or nil.
func (r *Relay) poolOf(size int) *pool.Pool[*buffer] {
	for _, p := range r.buffers {
		if p.size == size {
			return p.Pool
		}
	}
	return nil
}

func (r *Relay) buffer(size int) (*buffer, error) {
	b, err := r.poolOf(size).Get(context.Background())
	if err != nil {
		// Close has been called; sessions that still run go on without the pool.
		return &buffer{b: make([]byte, size), unpooled: true}, nil
	}
	return b, nil
}

func (r *Relay) returnBuffer(b *buffer) {
	if !b.unpooled {
		r.poolOf(len(b.b)).Put(b)
	}
}

// A waitingBuffer chooses the size of the buffer in which a wrapper's Read waits. For a stream it is the
// smallest size that the last read fits into, or the largest size after a read that filled its buffer. So an
// idle session with small messages holds little, and bulk is read in few pieces.
type waitingBuffer struct {
	size int // the first is small, because the first wait of a session may be a long one
	readSizes
}

// note chooses the next size after a read of n bytes into a buffer of the present size.
func (w *waitingBuffer) note(n int) {
	switch {
	case n >= w.size:
		w.size = w.largest
	case n < smallBuffer:
		w.size = max(smallBuffer, w.least)
	case n < mediumBuffer:
		w.size = max(min(mediumBuffer, w.largest), w.least)
	}
}
