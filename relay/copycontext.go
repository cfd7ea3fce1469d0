package relay

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// CopyContext is [Relay.Copy] until ctx ends. It then returns the number of bytes that dst took until
// then, and [context.Cause] of ctx.
//
// The end of ctx sets the deadlines of both ends to the past, where they have deadlines, to end a call
// that waits. They stay so: a caller that goes on with an end sets another one. The Read of a reader, and
// the Write of a writer, without deadlines is waited for; of a regular file there are up to 16 MiB. What
// was read and not taken by dst is gone, as after an error of dst. Without a ctx the error wraps os.ErrInvalid.
func (r *Relay) CopyContext(ctx context.Context, dst io.Writer, src io.Reader) (int64, error) {
	if err := r.copiesUntil(ctx, dst, src); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if ctx.Done() == nil {
		return r.Copy(dst, src)
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		interruptCopy(dst, src)
	})
	n, err := r.copyUntil(ctx, dst, src)
	late := !stop()
	if late {
		<-interrupted // or a deadline that the caller sets next might be overwritten
	}
	// A call ends by the deadline. A wrapper that waits for ctx itself may return before the deadline is set.
	if late && errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = context.Cause(ctx)
	}
	return n, err
}

// filePart is how much of a file is sent before the context is asked again, in bytes.
const filePart = 16 << 20

// copyUntil is Copy that asks ctx between calls that no deadline ends.
func (r *Relay) copyUntil(ctx context.Context, dst io.Writer, src io.Reader) (n int64, err error) {
	limited, _ := src.(*io.LimitedReader)
	from := src
	if limited != nil {
		from = limited.R
	}
	switch from := from.(type) {
	case *os.File:
		for err == nil {
			if ctx.Err() != nil {
				return n, context.Cause(ctx)
			}
			var part int64
			part, err = r.copyN(ctx, dst, src, filePart)
			n += part
		}
		if err == io.EOF {
			err = nil
		}
		return n, err
	case interface{ SetReadDeadline(time.Time) error }:
		return r.copyFor(ctx, dst, src)
	default:
		checked := &contextReader{ctx, from}
		if limited == nil {
			return r.copyFor(ctx, dst, checked)
		}
		rest := &io.LimitedReader{R: checked, N: limited.N}
		n, err = r.copyFor(ctx, dst, rest)
		limited.N = rest.N
		return n, err
	}
}

// A contextReader reads until its context ends.
type contextReader struct {
	ctx context.Context
	src io.Reader
}

// Read implements [io.Reader].
func (c *contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.src.Read(p)
}

// interruptCopy ends the calls of a copy that wait, by deadlines.
func interruptCopy(dst io.Writer, src io.Reader) {
	if l, ok := src.(*io.LimitedReader); ok {
		src = l.R
	}
	// An error means that the end has no deadlines, or is closed: then no call waits in it.
	if c, ok := src.(interface{ SetReadDeadline(time.Time) error }); ok {
		_ = c.SetReadDeadline(longAgo)
	}
	if c, ok := dst.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = c.SetWriteDeadline(longAgo)
	}
}
