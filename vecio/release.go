package vecio

import "github.com/penstock/penstock/pool"

// A Releaser is given an owned piece back: the very slice that [Writer.Own] was given,
// exactly once, when all of its bytes are written, or when the writer fails, is closed
// or reset, or when Own fails. *arena.Local is one; [Pooled] makes one of a *pool.Bytes, [ReleaseFunc] of a
// function.
//
// Release is called in the goroutine that calls the writer, in the midst of a Flush or of Own: it must
// not use the writer, nor close or write to the writer's destination.
type Releaser interface{ Release(piece []byte) }

// ReleaseFunc is a function as a [Releaser]. A function literal that captures something
// is allocated where it is written: make it once, not for each piece.
type ReleaseFunc func(piece []byte)

// Release calls f, unless it is nil.
func (f ReleaseFunc) Release(piece []byte) {
	if f != nil {
		f(piece)
	}
}

// Pooled returns a Releaser that puts pieces back into b: slices as b.Get returned them,
// with their start and capacity unchanged. It allocates nothing. Of nil it returns nil,
// which Own refuses.
func Pooled(b *pool.Bytes) Releaser {
	if b == nil {
		return nil
	}
	return (*pooled)(b)
}

type pooled pool.Bytes

func (p *pooled) Release(piece []byte) { (*pool.Bytes)(p).Put(piece) }
