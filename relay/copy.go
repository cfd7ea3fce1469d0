package relay

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"reflect"
	"strings"
	"syscall"
	"time"
)

// Copy moves bytes from src to dst until the end of src, as [io.Copy] does, and returns how
// many dst took. Two descriptors ([Engine] says of which types) are spliced, or sent by
// sendfile or copy_file_range, as [Config.Engine] allows; an [*io.LimitedReader] around src is
// honoured, and its N lowered by the bytes read. For types that are no connection it uses
// io.WriterTo and io.ReaderFrom as io.Copy does. WriteTo and ReadFrom of a [net.Conn] are not called: a wrapper that
// passes them on to a [*net.TCPConn], and so is spliced by io.Copy, is copied unless it is an [Unwrapper].
//
// Neither end is closed, and the end of src is not passed on. Deadlines of dst and src apply to every read and
// write; the timeouts of [Config] do not. A Read that returns no bytes and no error is called again, after up
// to a millisecond, however often.
//
// Reaching the end of src is no error. An error of a connection is a [*net.OpError], an error of a file an
// [*os.PathError]; the error of any other Read or Write is returned as it is. After an error of src all
// bytes read have been delivered. After an error of dst, bytes that were read and that dst has not taken are
// lost, as with io.Copy; [Relay.Move] counts them. If dst is a pipe on standard output or standard error, and nobody
// reads from it any more, SIGPIPE may end the program, as after a Write of the file (package os/signal). If dst or src
// is nil the error says which, and wraps os.ErrInvalid.
func (r *Relay) Copy(dst io.Writer, src io.Reader) (int64, error) {
	return r.copyFor(context.Background(), dst, src)
}

// copyFor is Copy, with the context for the Unwrappers.
func (r *Relay) copyFor(ctx context.Context, dst io.Writer, src io.Reader) (int64, error) {
	var f Flow
	err := r.move(ctx, dst, src, &f)
	return f.Bytes(), err
}

// CopyN is Copy of n bytes. It returns io.EOF if src ended before, as [io.CopyN]
// does.
func (r *Relay) CopyN(dst io.Writer, src io.Reader, n int64) (int64, error) {
	if n <= 0 {
		return 0, nil
	}
	moved, err := r.Copy(dst, io.LimitReader(src, n))
	switch {
	case moved == n:
		return n, nil
	case err == nil:
		err = io.EOF
	}
	return moved, err
}

// Move is Copy that returns the counters.
func (r *Relay) Move(dst io.Writer, src io.Reader) (Flow, error) {
	var f Flow
	err := r.move(context.Background(), dst, src, &f)
	return f, err
}

// move is the work of Move. Its frame stays on the stack of a waiting goroutine, so Flow and unwrapped ends are
// elsewhere.
func (r *Relay) move(ctx context.Context, dst io.Writer, src io.Reader, f *Flow) error {
	var p plan
	if ended, err := r.plan(ctx, dst, src, f, &p); ended {
		return err
	}
	if p.buffered != nil {
		return r.moveBuffered(p.dst, p.buffered, f)
	}
	d := &p.job.dir
	err := p.job.run(p.src, p.dst)
	if p.limit != nil {
		p.limit.N = d.rareState().remain
	}
	d.account(f)
	p.job.env.ctx = nil
	r.jobs.Put(p.job)
	return err
}

// A plan says how to copy: by moveBuffered, or by a job that is ready to run.
type plan struct {
	src      io.Reader
	dst      io.Writer
	buffered *bufio.Reader
	job      *copyJob
	limit    *io.LimitedReader // gets the number of bytes that remain
}

// plan makes the plan of a copy. ended says that the copy is over already.
//
//go:noinline
func (r *Relay) plan(ctx context.Context, dst io.Writer, src io.Reader, f *Flow, p *plan) (ended bool, err error) {
	if err := r.copies(dst, src); err != nil {
		f.Reason = ReasonError
		return true, err
	}
	remain := int64(-1)
	if l, ok := src.(*io.LimitedReader); ok {
		if l.N <= 0 {
			f.Reason = ReasonLimit
			return true, nil
		}
		p.limit, remain, src = l, l.N, l.R
	}
	read, err := unwrapReader(ctx, src, int(min(uint64(remain), math.MaxInt)))
	if err != nil {
		f.Reason = ReasonError
		return true, err
	}
	written := unwrapWriter(dst)
	leg := new(legState)
	from, to := newEnd(read.r, leg, &read), newEnd(written.w, leg, &written)
	p.src, p.dst = read.r, written.w
	meters := newMeters(read.meters, written.meters)
	whole := p.limit == nil && len(read.ahead) == 0 && read.err == nil
	memory := inMemory(from.rw)
	whole = whole && (ctx.Done() == nil || memory) // otherwise ctx is looked at before each read
	if br, ok := from.rw.(*bufio.Reader); ok && whole && to.desc != nil && len(read.meters) == 0 {
		if meters != nil {
			p.dst = dst
		}
		p.buffered = br
		return false, nil
	}
	if whole && memory && meters != nil && len(read.meters) == 0 {
		to.rw, meters = dst, nil // the Write of dst counts
	}
	if whole && meters == nil && from.framing != datagrams { // dst's ReadFrom might offer less room than a message takes
		if err, ok := delegate(to, from, f); ok {
			return true, err
		}
	}
	p.job = r.newCopyJob()
	p.job.env.ctx = ctx
	d := &p.job.dir
	d.setAhead(read.ahead)
	d.set(oneWay, true)
	if remain >= 0 {
		d.limit(remain - int64(len(read.ahead)))
	}
	p.job.ends.meters = meters
	r.connect(d, &p.job.ends, &p.job.env, from, to, read.err)
	if d.sendsFile() {
		d.mode = transferring
		d.set(pinned, true)
	}
	return false, nil
}

// account copies the direction's counters to f.
//
//go:noinline
func (d *direction) account(f *Flow) { *f = d.flow() }

// A copyJob is the state of a copy. It is used again, so that short copies need not make one.
type copyJob struct {
	dir  direction
	ends pair
	env  environment
	drv  *goroutineDriver
}

func (r *Relay) newCopyJob() *copyJob {
	j, ok := r.jobs.Get().(*copyJob)
	if !ok {
		j = new(copyJob)
		j.drv = newGoroutineDriver()
	}
	j.dir = direction{}
	j.env = environment{leaser: r, tune: &r.cfg, counts: &r.ledger.goroutines}
	return j
}

// sendsFile reports whether d may move its source's bytes without a pipe.
func (d *direction) sendsFile() bool {
	src, ok := d.link.(*pair).source.(*descriptor)
	return ok && src.kind == regular && !d.is(waits) && (!d.is(pinned) || d.mode == splicing)
}

// run drives the copy to its end and releases its leases.
func (j *copyJob) run(in, out any) error {
	d := &j.dir
	j.drv.take(d)
	defer d.abandon(false)
	j.drv.run()
	if f := d.failure(); f != nil {
		if file, ok := in.(*os.File); ok && d.mode == transferring && d.moves == 0 && atEnd(file) {
			d.finished(ReasonEOF) // io.Copy finds nothing to write
			return nil
		}
		return copyError(*f, in, out)
	}
	// At a limit, return an error that came together with the last bytes, as io.Copy does.
	if src, ok := j.ends.source.(*opaqueSource); ok && src.err != nil && src.err != io.EOF {
		return src.err
	}
	return nil
}

// atEnd reports whether a file has nothing left to read.
func atEnd(f *os.File) bool {
	at, err := f.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = f.ReadAt(make([]byte, 1), at)
	}
	return err == io.EOF
}

// delegate lets two ends without descriptors use WriteTo or ReadFrom, which may save a copy.
func delegate(to, from end, f *Flow) (err error, ok bool) {
	if to.desc != nil && isFile(from.rw) {
		return nil, false // nothing would be saved, and an error of the file would look like one of dst
	}
	var n int64
	dst := to.rw.(io.Writer)
	if to.desc == nil && isFile(dst) {
		dst = struct{ io.Writer }{dst} // its ReadFrom spins while a pipe that blocks is full (poll.Splice)
	}
	if wt, ok := from.rw.(io.WriterTo); ok && from.mayDelegate() {
		n, err = wt.WriteTo(dst)
	} else if rf, ok := dst.(io.ReaderFrom); ok && to.mayDelegate() {
		src := from.rw.(io.Reader)
		if w, ok := dst.(*bufio.Writer); ok && writesFile(w) {
			src = struct{ io.Reader }{src}
		}
		n, err = rf.ReadFrom(src)
	} else {
		return nil, false
	}
	f.Copied, f.Reason = n, ReasonEOF
	if err != nil {
		f.Reason = reasonOf(err)
	}
	f.Fallbacks[FallbackWrapped] = 1
	return err, true
}

// inMemory reports whether no Read of r waits. Its WriteTo makes one Write, and so one message, of its bytes.
func inMemory(r any) bool {
	switch r.(type) {
	case *bytes.Reader, *bytes.Buffer, *strings.Reader, *net.Buffers:
		return true
	}
	return false
}

// mayDelegate reports whether the WriteTo and ReadFrom of an end are its own. A type that embeds a connection
// may have them from the connection; they would bypass a Read or Write that wants to see every byte.
func (e end) mayDelegate() bool {
	if isPlain(e.rw) {
		return e.desc == nil // otherwise package net or os already does its best
	}
	_, conn := e.rw.(net.Conn)
	_, sys := e.rw.(syscall.Conn)
	return !conn && !sys
}

// CopyContext is [Relay.Copy] until ctx ends. Then it returns the number of bytes that dst has taken, and
// [context.Cause] of ctx.
//
// When ctx ends, CopyContext sets the deadlines of both ends, if they have any, to the past. After any error, not
// only ctx's, set the deadline of an end before you use it again. If the error is nil, no deadline was set.
// CopyContext waits for a Read or Write that no deadline ends, and for up to 4 MiB of a regular file. Bytes that
// were read and that dst has not taken are lost, as after an error of dst. Without a ctx the error wraps
// os.ErrInvalid.
func (r *Relay) CopyContext(ctx context.Context, dst io.Writer, src io.Reader) (n int64, err error) {
	if err := r.copiesUntil(ctx, dst, src); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if ctx.Done() == nil {
		return r.Copy(dst, src)
	}
	over := make(chan any, 1)
	stop := context.AfterFunc(ctx, func() {
		defer func() { over <- recover() }()
		interruptCopy(dst, src)
	})
	defer func() { // also after a panic: no deadline is set after the return
		late := !stop()
		if late {
			if p := <-over; p != nil {
				panic(p)
			}
		}
		// The deadline ended a call, or came after the last one; or a wrapper, or the copy, looked at ctx itself.
		if late && (err == nil || interrupted(err)) || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = context.Cause(ctx)
		}
	}()
	return r.copyFor(ctx, dst, src)
}

// interruptCopy ends waiting calls of a copy by deadlines.
func interruptCopy(dst io.Writer, src io.Reader) {
	if l, ok := src.(*io.LimitedReader); ok {
		src = l.R
	}
	// A failure means that the end has no deadlines, or is closed and no call waits in it.
	if c, ok := dst.(interface{ SetWriteDeadline(time.Time) error }); ok {
		defer func() { _ = c.SetWriteDeadline(longAgo) }() // also if src panics
	}
	if c, ok := src.(interface{ SetReadDeadline(time.Time) error }); ok {
		_ = c.SetReadDeadline(longAgo)
	}
}

// moveBuffered is move from a [bufio.Reader] to a descriptor. The reader's WriteTo writes the bytes that it has
// buffered, and then passes its own source to ReadFrom, which moves it like any other.
func (r *Relay) moveBuffered(dst io.Writer, src *bufio.Reader, f *Flow) error {
	to := &bufferedSink{relay: r, dst: dst, connection: connectionOf(src)}
	_, err := src.WriteTo(to)
	if to.rest != nil && err == nil {
		_, err = to.move(to.rest)
	}
	if to.flow.Reason = ReasonEOF; err != nil {
		to.flow.Reason = reasonOf(err)
	}
	*f = to.flow
	return err
}

// A bufferedSink is the destination of a [bufio.Reader].
type bufferedSink struct {
	relay      *Relay
	dst        io.Writer
	flow       Flow
	connection uintptr   // address of the *net.TCPConn that the reader reads; 0: it reads something else
	rest       io.Reader // that connection, if it is moved after WriteTo
}

// connectionOf returns the address of the [net.TCPConn] that a reader reads directly, or 0.
func connectionOf(src *bufio.Reader) uintptr {
	rd := reflect.ValueOf(src).Elem().FieldByName("rd")
	if rd.Kind() != reflect.Interface || rd.IsNil() || rd.Elem().Type() != reflect.TypeFor[*net.TCPConn]() {
		return 0
	}
	return rd.Elem().Pointer()
}

// writesFile reports whether a writer writes directly to a file.
func writesFile(dst *bufio.Writer) bool {
	wr := reflect.ValueOf(dst).Elem().FieldByName("wr")
	return wr.Kind() == reflect.Interface && !wr.IsNil() && wr.Elem().Type() == reflect.TypeFor[*os.File]()
}

func (s *bufferedSink) Write(p []byte) (int, error) {
	n, err := s.dst.Write(p)
	s.flow.Copied += int64(n)
	return n, err
}

// ReadFrom implements [io.ReaderFrom]: it moves the reader's source. A connection that the reader reads
// directly is moved after ReadFrom has returned: with the frames of packages bufio, net and io beneath, the
// goroutine would wait on a stack of 8 KiB, not 4.
func (s *bufferedSink) ReadFrom(src io.Reader) (int64, error) {
	src = withWriteTo(src)
	if c, ok := src.(*net.TCPConn); ok && s.connection == reflect.ValueOf(c).Pointer() {
		s.rest = c
		return 0, nil
	}
	return s.move(src)
}

func (s *bufferedSink) move(src io.Reader) (int64, error) {
	copied := s.flow.Copied
	s.flow = Flow{}
	err := s.relay.move(context.Background(), s.dst, src, &s.flow)
	moved := s.flow.Bytes()
	s.flow.Copied += copied
	return moved, err
}

// withWriteTo returns the connection or file inside tcpConnWithoutWriteTo of package net or fileWithoutWriteTo of
// package os, and any other src as it is. The WriteTo of a connection or file wraps it in these types, which have
// no WriteTo.
func withWriteTo(src io.Reader) io.Reader {
	v := reflect.ValueOf(src)
	if v.Kind() != reflect.Struct {
		return src
	}
	switch v.Type().PkgPath() {
	case "net":
		if c, ok := embedded(v, "TCPConn").(*net.TCPConn); ok {
			return c
		}
	case "os":
		if f, ok := embedded(v, "File").(*os.File); ok {
			return f
		}
	}
	return src
}

// embedded returns the struct field with that name, or nil.
func embedded(v reflect.Value, name string) any {
	f := v.FieldByName(name)
	if !f.IsValid() || !f.CanInterface() {
		return nil
	}
	return f.Interface()
}
