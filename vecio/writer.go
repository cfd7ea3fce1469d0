package vecio

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"unsafe"
)

// Writer gathers pieces and writes them. It is for one goroutine at a time. While nothing
// is pending it holds no buffer; in a steady state it allocates nothing. The zero Writer
// takes nothing before Reset; then it has the zero Config.
//
// A piece that was taken is borrowed (Append), so that the caller must not change it until
// Pending is 0 or the writer has failed, or owned (Own), so that it is given back. When a
// method returns an error for a piece, the piece was not taken: a borrowed piece belongs to
// the caller, and an owned piece was given back. ErrFull is avoided by a look at Room.
//
// Any error but ErrBlocked, ErrFull and a timeout fails the writer: all pieces are given back,
// pending pieces are dropped, and every later call returns the same error, a [*WriteError],
// until Reset. After a timeout the pieces stay, and Flush goes on where it was.
type Writer struct {
	config Config
	path   Path
	out    outlet
	whole  bool // messages: all that is pending must go in one call
	cork   cork
	pace   pace

	q                 *queue // nil while nothing is pending
	appended, written int64  // bytes since New or Reset; appended is without filled
	pieces            int64  // taken, except for pieces with lengths in the queue or alike
	free              []byte // see short
	filled            int
	like              run
	first             uint8 // size of the next queue's first buffer
	full              bool  // ErrFull until no more than Low is pending
	err               error

	stats Stats
}

// An outlet is a path.
type outlet interface {
	// drain writes until at most low bytes are pending. It returns ErrBlocked, or the
	// name of the call and the cause.
	drain(w *Writer, low int64) (op string, err error)
}

// New returns a writer to dst. *net.TCPConn, *net.UnixConn, *net.UDPConn, *net.IPConn and
// *os.File are written by their descriptors, which they still own; Flush waits with the
// runtime's poller and honours write deadlines. On a socket of datagrams each Flush sends one
// datagram. Anything else gets one Write of everything: a wrapper, even if it embeds one of
// these types, may want to see the bytes. nil stands for the zero Config.
func New(dst io.Writer, cfg *Config) (*Writer, error) {
	w, err := newWriter(cfg)
	if err != nil {
		return nil, err
	}
	if err := w.Reset(dst); err != nil {
		return nil, err
	}
	return w, nil
}

// NewSocket returns a writer to a non-blocking descriptor, for instance a descriptor registered with
// a loop. It is borrowed: the caller keeps it open as long as the writer is used, and closes
// it. Flush never waits. The error names the fault of the descriptor; on systems other than
// Linux it wraps errors.ErrUnsupported.
func NewSocket(fd int, cfg *Config) (*Writer, error) {
	w, err := newWriter(cfg)
	if err != nil {
		return nil, err
	}
	if err := w.ResetSocket(fd); err != nil {
		return nil, err
	}
	return w, nil
}

func newWriter(cfg *Config) (*Writer, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	c := cfg.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	return &Writer{config: c}, nil
}

var (
	errNoWriter   = errors.New("penstock: vecio: the writer is nil: give a writer to New or Reset")
	errNoReleaser = errors.New("penstock: vecio: Own needs a Releaser: give a Releaser, or use Append")
)

// Reset makes it a writer to dst, as New does, with the same Config. It drops the pending
// pieces and gives them back, forgets a failure, and counts from 0.
func (w *Writer) Reset(dst io.Writer) error {
	w.restart()
	w.err = errNoWriter
	if !isNil(dst) {
		w.err = w.ready(w.open(dst))
	}
	return w.err
}

// isNil reports whether dst is nil, or a nil pointer of a type that has a descriptor. A nil pointer of another type may be a writer.
func isNil(dst io.Writer) bool {
	switch dst.(type) {
	case nil:
		return true
	case *net.TCPConn, *net.UnixConn, *net.UDPConn, *net.IPConn, *os.File:
		return reflect.ValueOf(dst).IsNil()
	}
	return false
}

// ResetSocket is Reset for a descriptor, as NewSocket is New.
func (w *Writer) ResetSocket(fd int) error {
	w.restart()
	w.err = w.ready(w.openSocket(fd))
	return w.err
}

// ready makes an opened destination ready for the Config, unless there is an error.
func (w *Writer) ready(err error) error {
	if err == nil {
		err = w.openOptions()
	}
	if err != nil {
		return fmt.Errorf("penstock: vecio: %w", err)
	}
	return nil
}

// restart leaves nothing but the Config.
func (w *Writer) restart() {
	w.letGo()
	w.abandon()
	*w = Writer{config: w.config.withDefaults()} // which the zero Writer has not
}

// letGo removes the options that make the kernel hold back bytes. If none is set, it does not
// touch the descriptor, which may be closed already and its number in use again.
func (w *Writer) letGo() {
	if w.q != nil {
		w.uncork(false)
	}
	w.cork.draw()
	w.pace = pace{}
}

// Pending returns how many bytes were taken and are still to be written. When it is 0, no
// piece is borrowed any more.
func (w *Writer) Pending() int {
	if w.q == nil { // all is written, or dropped
		return 0
	}
	return int(w.appended-w.written) + w.filled
}

// Room returns how many bytes may be added before a writer that never waits refuses a
// piece with ErrFull, or another writer waits. A piece that comes when nothing is
// pending may be longer.
func (w *Writer) Room() int {
	if w.state() != nil || w.full && w.Pending() > w.config.Low || w.q != nil && w.q.crowded() {
		return 0
	}
	return max(w.config.High-w.Pending(), 0)
}

// Append adds a piece. If it is shorter than Config.CopyBelow it is copied; otherwise it
// is borrowed, and must not be changed until Pending is 0 or the writer has failed. Above
// the high mark it waits or fails, see Config.High.
func (w *Writer) Append(p []byte) error {
	if w.alike(len(p)) || w.short(len(p)) {
		w.filled += copy(w.free[w.filled:], p)
		return nil
	}
	short := len(p) < w.config.CopyBelow
	if !short && w.long(p) {
		return nil
	}
	return w.append(p, short)
}

// AppendString is Append of the bytes of s. On PathCoalesced they are always copied: the
// Write that would see a string's memory might change it.
func (w *Writer) AppendString(s string) error {
	if w.alike(len(s)) || w.short(len(s)) {
		w.filled += copy(w.free[w.filled:], s)
		return nil
	}
	// The view is as long as the string, and s is immutable: only the kernel gets it.
	p := unsafe.Slice(unsafe.StringData(s), len(s))
	return w.append(p, len(p) < w.config.CopyBelow || w.path == PathCoalesced)
}

// AppendCopy is Append with a copy, whatever the length of the piece. The caller may use its memory
// again at once, for example for the next piece.
func (w *Writer) AppendCopy(p []byte) error {
	if w.alike(len(p)) || w.short(len(p)) {
		w.filled += copy(w.free[w.filled:], p)
		return nil
	}
	return w.append(p, true)
}

func (w *Writer) append(p []byte, copied bool) error {
	if err := w.admit(len(p)); err != nil {
		return err
	}
	w.add(p, copied)
	w.offer()
	w.paced()
	return nil
}

// Own adds a piece that r gets back, exactly once, when it is written or the writer fails, is closed or reset, or
// before Own returns an error; until then it must not be changed, whatever its length. A short piece is copied as well,
// which saves an entry of the vector. An empty piece is given back when the pieces before it are written, at once if
// nothing is pending.
func (w *Writer) Own(p []byte, r Releaser) error {
	if r == nil {
		return cmp.Or(w.state(), errNoReleaser)
	}
	if err := w.admit(len(p)); err != nil {
		w.release(p, r)
		return err
	}
	w.add(p, len(p) < w.config.CopyBelow)
	if w.q == nil { // it is empty, and so is the queue
		w.release(p, r)
		return nil
	}
	w.q.owners.push(owner{site: here(), end: w.appended, piece: p, r: r})
	w.offer()
	w.paced()
	return nil
}

// Flush writes the pending pieces. A writer that may wait returns when the kernel has all bytes,
// the writer has failed, or a deadline has passed. A writer that never waits returns ErrBlocked
// when the kernel takes no more.
func (w *Writer) Flush() error { return w.settle(w.drain(0)) }

// Close gives everything back and makes every later call fail with ErrClosed; the
// descriptor still belongs to its owner. It writes nothing: Flush first. If bytes stay
// unwritten it returns a [*WriteError]; after a failure it returns nil.
func (w *Writer) Close() error {
	var err error
	switch {
	case errors.Is(w.err, ErrClosed):
		return ErrClosed
	case w.Pending() > 0:
		err = w.failure("close", errUnsent)
	}
	w.letGo()
	w.abandon()
	w.err = ErrClosed
	return err
}

// state is the error of a writer that takes nothing.
func (w *Writer) state() error {
	if w.err == nil && w.out == nil {
		return errNoWriter
	}
	return w.err
}

// admit lets a piece of n bytes in, waits until there is room, or refuses it.
func (w *Writer) admit(n int) error {
	if w.q == nil {
		return w.state()
	}
	if w.full || w.Pending()+n > w.config.High || w.q.crowded() {
		return w.makeRoom(n)
	}
	return nil
}

func (w *Writer) makeRoom(n int) error {
	switch {
	case w.full && w.Pending() <= w.config.Low:
		w.full = false
		return w.admit(n)
	case w.path == PathSocket || w.whole:
		w.full = true
		w.sync()
		w.stats.Refused++
		return ErrFull
	}
	w.stats.Waits++
	low := min(w.config.Low, max(w.config.High-n, 0))
	if w.q.crowded() {
		low = 0
	}
	return w.early(int64(low))
}

// add queues a piece that was let in.
func (w *Writer) add(p []byte, copied bool) {
	if !copied {
		w.stats.Refs++
		w.stats.RefBytes += int64(len(p))
	}
	if w.q == nil {
		if len(p) == 0 {
			w.pieces++
			return
		}
		w.q = queues.Get().(*queue)
		w.q.lengths.base, w.q.next = w.appended, w.first
	}
	w.sync()
	switch {
	case len(p) == 0:
	case copied:
		w.q.copy(p, w.appended)
	default:
		w.q.borrow(p, w.appended)
		w.q.refer(p)
	}
	w.appended += int64(len(p))
	w.q.lengths.add(len(p), 1)
}

// taken returns how many pieces were taken.
func (w *Writer) taken() int64 {
	if w.q == nil {
		return w.pieces
	}
	return w.pieces + w.q.lengths.count + int64(w.like.count)
}

// drain writes until at most low bytes are pending.
func (w *Writer) drain(low int64) error {
	if w.q == nil {
		return w.state()
	}
	w.sync()
	op, err := w.out.drain(w, low)
	if err == nil || err == ErrBlocked {
		return err
	}
	return w.fail(op, err)
}

// wrote counts n bytes that are written, and gives back the pieces that end with them.
func (w *Writer) wrote(n int) {
	w.written += int64(n)
	if invariants {
		w.q.sent(w.written-int64(n), w.written)
	}
	if w.written == w.appended {
		w.abandon()
		return
	}
	w.q.cut(n)
	for w.q.owners.len() > 0 && w.q.owners.all()[0].end <= w.written {
		w.pop()
	}
	w.pieces += w.q.lengths.forget(w.written)
}

// abandon gives everything back, written or not.
func (w *Writer) abandon() {
	if w.q == nil {
		return
	}
	w.pieces = w.taken()
	if w.first = 0; w.q.ample() {
		w.first = 1
	}
	w.appended += int64(w.filled)
	w.free, w.filled, w.like = nil, 0, run{}
	w.q.shut(w.appended)
	for w.q.owners.len() > 0 {
		w.pop()
	}
	w.q.recycle()
	w.q = nil
	w.full = false
}

// pop gives the first owner's piece back.
func (w *Writer) pop() {
	o := w.q.owners.all()[0]
	w.q.owners.pop()
	w.release(o.piece, o.r)
}

func (w *Writer) release(piece []byte, r Releaser) {
	if _, ours := r.(*buffer); !ours {
		w.stats.Releases++
	}
	r.Release(piece)
}

// fail makes the error of a call, and fails the writer unless it was a timeout.
func (w *Writer) fail(op string, cause error) error {
	e := w.failure(op, cause)
	w.uncork(e.Timeout())
	if e.Timeout() {
		return e
	}
	w.abandon()
	w.err = e
	return e
}

// failure describes where the writer is.
func (w *Writer) failure(op string, cause error) *WriteError {
	e := &WriteError{Op: op, Written: w.written, Piece: w.taken(), Pieces: w.taken(), Err: cause}
	if w.q == nil {
		return e
	}
	w.sync()
	e.Piece, e.Offset = w.q.lengths.reached(w.written)
	e.Piece += w.pieces
	return e
}

// A coalescer writes to a destination that has no descriptor, or hides it.
type coalescer struct{ dst io.Writer }

// drain hands over everything that is pending, whatever low is: in one Write as long as
// that is no more than the largest buffer.
func (c coalescer) drain(w *Writer, _ int64) (string, error) {
	for w.q != nil {
		offered, n, err := c.write(w)
		w.stats.Calls++
		if n < 0 || n > offered {
			n, err = 0, errInvalidWrite
		}
		if n < offered {
			w.stats.Short++
			if err == nil {
				err = io.ErrShortWrite
			}
		}
		w.wrote(n)
		if err != nil {
			return "write", err
		}
	}
	return "", nil
}

// write makes one Write. A single span is not copied.
func (c coalescer) write(w *Writer) (offered, n int, err error) {
	spans := w.q.spans.all()
	if len(spans) == 1 || len(spans[0]) >= sizes[len(sizes)-1] {
		n, err = c.dst.Write(spans[0])
		return len(spans[0]), n, err
	}
	b := leaseBuffer(fit(w.Pending()))
	defer b.Release(nil)
	for _, p := range spans {
		k := copy(b.data[b.used:], p)
		if b.used += k; k < len(p) {
			break
		}
	}
	w.stats.Coalesced += int64(b.used)
	n, err = c.dst.Write(b.data[:b.used])
	return b.used, n, err
}

// fit returns the smallest size that holds n bytes, or the largest.
func fit(n int) uint8 {
	for i, size := range sizes {
		if n <= size {
			return uint8(i)
		}
	}
	return uint8(len(sizes) - 1)
}
