//go:build !linux

package vecio

import (
	"io"

	"github.com/penstock/penstock/internal/feature"
)

// open makes dst the destination: gathered writes are Linux's here.
func (w *Writer) open(dst io.Writer) error {
	w.path, w.out = PathCoalesced, coalescer{dst}
	return nil
}

func (w *Writer) openSocket(int) error { return &feature.Error{Feature: "vecio: a descriptor"} }

func (w *Writer) openOptions() error { return nil }
