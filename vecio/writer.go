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

// Writer gathers pieces and writes them. Only one goroutine may use it at a time. While nothing is pending it
// holds no buffer; in a steady state it allocates nothing. The zero Writer takes nothing before Reset; then it
// has the zero Config.
//
// A piece that was taken is either borrowed (Append): the caller must not change it until Pending is 0 or the
// writer has failed; or owned (Own): the writer gives it back. When a method returns an error for a piece, the
// piece was not taken: a borrowed piece belongs to the caller, and an owned piece was given back. Ask Room to
// avoid ErrFull.
//
// Any error but ErrBlocked, ErrFull and a timeout fails the writer: it gives all pieces back and drops pending
// ones, and every later call returns the same error, a [*WriteError], until Reset. After a timeout the pieces
// stay, and the next Flush continues.
type Writer struct {
	config Config
	path   Path
	out    outlet
	whole  bool // datagrams: everything pending goes in one call
	cork   cork
	pace   pace

	q                 *queue // nil while nothing is pending
	appended, written int64  // bytes since New or Reset; appended does not count filled
	pieces            int64  // pieces taken, not counting pieces in the queue's lengths and in like
	free              []byte // room for short pieces, see the comment before alike
	filled            int
	like              run
	first             uint8 // size index of the next queue's first buffer
	full              bool  // return ErrFull until at most Low bytes are pending
	err               error

	stats Stats
}

// An outlet is the way that bytes take to the destination.
type outlet interface {
	// drain writes until at most low bytes are pending. It returns ErrBlocked, or the name of the failed call
	// and the cause.
	drain(w *Writer, low int64) (op string, err error)
}

// New returns a writer to dst. It writes to a *net.TCPConn, *net.UnixConn, *net.UDPConn, *net.IPConn or
// *os.File by the descriptor, which dst still owns; Flush waits with the runtime's poller and honours write
// deadlines. On a socket of datagrams each Flush sends one datagram. Anything else gets one Write of
// everything: a wrapper, even if it embeds one of these types, may want to see the bytes. nil means the zero
// Config.
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

// NewSocket returns a writer to a non-blocking descriptor, for instance one registered with a loop. The
// descriptor is borrowed: the caller keeps it open as long as the writer is used, and closes it. Flush never
// waits. The error says what is wrong with the descriptor; on systems other than Linux it wraps
// errors.ErrUnsupported.
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
	errNoWriter   = errors.New("penstock: vecio: the Writer has no destination: pass a writer to New or Reset")
	errNoReleaser = errors.New("penstock: vecio: Own needs a Releaser: pass one, or use Append")
)

// Reset makes w a writer to dst, as New does, with the same Config. It drops the pending pieces and gives them
// back, forgets a failure, and counts from 0.
func (w *Writer) Reset(dst io.Writer) error {
	w.restart()
	w.err = errNoWriter
	if !isNil(dst) {
		w.err = w.ready(w.open(dst))
	}
	return w.err
}

// isNil reports whether dst is nil, or a nil pointer of a type that has a descriptor. A nil pointer of another
// type may work as a writer.
func isNil(dst io.Writer) bool {
	switch dst.(type) {
	case nil:
		return true
	case *net.TCPConn, *net.UnixConn, *net.UDPConn, *net.IPConn, *os.File:
		return reflect.ValueOf(dst).IsNil()
	}
	return false
}

// ResetSocket is Reset for a descriptor, as NewSocket is New for one.
func (w *Writer) ResetSocket(fd int) error {
	w.restart()
	w.err = w.ready(w.openSocket(fd))
	return w.err
}

// ready sets the options of an opened destination, and wraps an error.
func (w *Writer) ready(err error) error {
	if err == nil {
		err = w.openOptions()
	}
	if err != nil {
		return fmt.Errorf("penstock: vecio: %w", err)
	}
	return nil
}

// restart resets everything but the Config.
func (w *Writer) restart() {
	w.letGo()
	w.abandon()
	*w = Writer{config: w.config.withDefaults()} // the zero Writer has no defaults yet
}

// letGo clears the options that make the kernel hold back bytes. If none is set, it does not touch the
// descriptor, which may be closed already and its number in use again.
func (w *Writer) letGo() {
	if w.q != nil {
		w.uncork(false)
	}
	w.cork.draw()
	w.pace = pace{}
}

// Pending returns how many bytes were taken and not yet written. When it is 0, no piece is borrowed.
func (w *Writer) Pending() int {
	if w.q == nil { // everything is written, or dropped
		return 0
	}
	return int(w.appended-w.written) + w.filled
}

// Room returns how many bytes may be added before a writer refuses a piece with ErrFull, or waits if it may wait.
// A piece that comes when nothing is pending may be longer.
func (w *Writer) Room() int {
	if w.state() != nil || w.full && w.Pending() > w.config.Low || w.q != nil && w.q.crowded() {
		return 0
	}
	return max(w.config.High-w.Pending(), 0)
}

// Append adds a piece. If it is shorter than Config.CopyBelow it is copied; otherwise it is borrowed, and must
// not be changed until Pending is 0 or the writer has failed. If too much is pending, Append waits or fails,
// see Config.High.
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

// AppendString is Append for a string. On PathCoalesced it always copies, because a Write that sees a string's
// memory might change it.
func (w *Writer) AppendString(s string) error {
	if w.alike(len(s)) || w.short(len(s)) {
		w.filled += copy(w.free[w.filled:], s)
		return nil
	}
	// The slice is as long as the string, and only the kernel reads it, so s stays immutable.
	p := unsafe.Slice(unsafe.StringData(s), len(s))
	return w.append(p, len(p) < w.config.CopyBelow || w.path == PathCoalesced)
}

// AppendCopy is Append that copies a piece of any length. The caller may use the memory again at once, for
// example for the next piece.
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

// Own adds a piece that r gets back, exactly once: when it is written, when the writer fails, is closed or
// reset, or before Own returns an error. Until then it must not be changed, whatever its length. A short piece
// is copied anyway, which saves an entry of the vector. An empty piece is given back when the pieces before it
// are written, or at once if nothing is pending.
func (w *Writer) Own(p []byte, r Releaser) error {
	if r == nil {
		return cmp.Or(w.state(), errNoReleaser)
	}
	if err := w.admit(len(p)); err != nil {
		w.release(p, r)
		return err
	}
	w.add(p, len(p) < w.config.CopyBelow)
	if w.q == nil { // the piece is empty, and so is the queue
		w.release(p, r)
		return nil
	}
	w.q.owners.push(owner{site: here(), end: w.appended, piece: p, r: r})
	w.offer()
	w.paced()
	return nil
}

// Flush writes the pending pieces. A writer that may wait returns when the kernel has all bytes, when it has
// failed, or when a deadline has passed. A writer that never waits returns ErrBlocked when the kernel takes no
// more.
func (w *Writer) Flush() error { return w.settle(w.drain(0)) }

// Close gives all pieces back and makes every later call fail with ErrClosed; the descriptor still belongs to
// its owner. It writes nothing: Flush first. If bytes stay unwritten it returns a [*WriteError]; after a
// failure it returns nil.
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

// state returns the error of a writer that takes nothing, or nil.
func (w *Writer) state() error {
	if w.err == nil && w.out == nil {
		return errNoWriter
	}
	return w.err
}

// admit lets a piece of n bytes in, after waiting for room if necessary, or refuses it.
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

// add queues a piece that admit has let in.
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

// wrote counts n written bytes, and gives back the pieces that end with them.
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

// abandon gives all pieces back, written or not.
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

// pop gives back the piece of the first owner.
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

// fail returns the error of a call, and fails the writer unless it was a timeout.
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

// failure returns an error with the writer's progress.
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

// drain hands over everything pending, whatever low is: in one Write, if that is no more than the largest
// buffer.
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

// write makes one Write. It does not copy a single span.
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
