//go:build !linux

package vecio

import (
	"io"

	"github.com/penstock/penstock/internal/feature"
)

// open makes dst the destination. Gathered writes exist only on Linux.
func (w *Writer) open(dst io.Writer) error {
	w.path, w.out = PathCoalesced, coalescer{dst}
	return nil
}

func (w *Writer) openSocket(int) error { return &feature.Error{Feature: "vecio: a descriptor"} }

func (w *Writer) openOptions() error { return nil }

// A cork does nothing on systems where writers only call Write.
type cork struct{ corked int64 }

func (c *cork) hold()        {}
func (c *cork) draw()        {}
func (c *cork) push()        {}
func (c *cork) segment() int { return 0 }
