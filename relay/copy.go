package relay

import (
	"fmt"
	"io"
)

// Copy moves bytes from src to dst until the end of src, as [io.Copy] does, and
// returns how many dst took. Two descriptors (see the package comment for which)
// are spliced, or sent by sendfile or copy_file_range, as [Config.Engine] allows;
// an [*io.LimitedReader] around src is honoured, and its N lowered by what was
// read. For other types it uses io.WriterTo and io.ReaderFrom as io.Copy does.
//
// Neither end is closed, and the end of src is not passed on. Deadlines of the
// two apply, the timeouts of [Config] do not. Reaching the end of src is no
// error; other errors are those of [Session.Run]. Bytes that were read and that
// dst did not take are gone after an error, as with io.Copy; [Relay.Move] counts
// them.
func (r *Relay) Copy(dst io.Writer, src io.Reader) (int64, error) {
	f, err := r.Move(dst, src)
	return f.Bytes(), err
}

// CopyN is Copy of n bytes. It returns io.EOF if src ended before, as [io.CopyN]
// does.
func (r *Relay) CopyN(dst io.Writer, src io.Reader, n int64) (int64, error) {
	moved, err := r.Copy(dst, io.LimitReader(src, n))
	if err == nil && moved < n {
		err = io.EOF
	}
	return moved, err
}

// Move is Copy, and tells how the bytes went.
func (r *Relay) Move(dst io.Writer, src io.Reader) (Flow, error) {
	limit, remain := (*io.LimitedReader)(nil), int64(-1)
	if l, ok := src.(*io.LimitedReader); ok {
		if l.N <= 0 {
			return Flow{}, nil
		}
		limit, remain, src = l, l.N, l.R
	}
	in, ahead := unwrapReader(src)
	out := unwrapWriter(dst)
	srcDesc, dstDesc := newDescriptor(in), newDescriptor(out)
	if limit == nil && len(ahead) == 0 {
		if f, err, ok := delegate(out, in, srcDesc, dstDesc); ok {
			return f, err
		}
	}
	d := &direction{
		src: newSource(in, srcDesc), dst: newSink(out, dstDesc),
		ahead: ahead, remain: remain, oneWay: true,
	}
	d.limitAhead()
	r.setUp(d, srcDesc != nil && dstDesc != nil)
	if d.sendsFile(srcDesc) {
		d.mode, d.pinned = transferring, true
	}
	err := r.moveAll(d, in, out)
	if limit != nil {
		limit.N = d.remain
	}
	return d.flow(), err
}

// limitAhead takes the bytes that were read ahead off the limit. What exceeds it
// stays the wrapper's loss: it was asked for its reader, and has let go of them.
func (d *direction) limitAhead() {
	if d.remain < 0 {
		return
	}
	n := min(int64(len(d.ahead)), d.remain)
	d.ahead, d.remain = d.ahead[:n], d.remain-n
}

// sendsFile reports whether d may move its source's bytes without a pipe.
func (d *direction) sendsFile(src *descriptor) bool {
	return !d.pinned && src != nil && src.kind == regular
}

// moveAll drives d to its end and gives back what it held.
func (r *Relay) moveAll(d *direction, in io.Reader, out io.Writer) error {
	err := newDriver(d).run()
	if err == nil && d.failure.err != nil {
		err = opError(d.failure, in, out)
	} else if err != nil {
		d.finished(ReasonError)
		err = fmt.Errorf("penstock: relay: copy: %w", err)
	}
	d.abandon(false)
	return err
}

// delegate lets two ends that are no descriptors use WriteTo and ReadFrom, which
// may save a copy. A plain connection's own are not used: relay is better at it.
func delegate(dst io.Writer, src io.Reader, srcDesc, dstDesc *descriptor) (Flow, error, bool) {
	var n int64
	var err error
	if wt, ok := src.(io.WriterTo); ok && srcDesc == nil && !isPlain(src) {
		n, err = wt.WriteTo(dst)
	} else if rf, ok := dst.(io.ReaderFrom); ok && dstDesc == nil && !isPlain(dst) {
		n, err = rf.ReadFrom(src)
	} else {
		return Flow{}, nil, false
	}
	f := Flow{Copied: n, Reason: ReasonEOF}
	if err != nil {
		f.Reason = reasonOf(err)
	}
	f.Fallbacks[FallbackWrapped] = 1
	return f, err, true
}
