package write

import (
	"net"

	"github.com/penstock/penstock/vecio"
)

// gathered writes to a connection of package net by a vecio.Writer, which counts the bytes it
// copies.
type gathered struct {
	onConn
	w *vecio.Writer
}

// openVecio gathers each batch with the defaults.
func openVecio(c *net.TCPConn, _ []int) (writer, error) {
	w, err := vecio.New(c, nil)
	if err != nil {
		return nil, err
	}
	g := &gathered{onConn{conn: c}, w}
	g.batch = func(pieces [][]byte) error {
		if err := gather(w, pieces); err != nil {
			return err
		}
		return w.Flush()
	}
	return g, nil
}

// gather appends all pieces.
func gather(w *vecio.Writer, pieces [][]byte) error {
	for _, p := range pieces {
		if err := w.Append(p); err != nil {
			return err
		}
	}
	return nil
}

func (g *gathered) copied() int64 { return copiedBy(g.w) }

// copiedBy returns how many bytes a writer has copied: of small pieces, and of all if it has
// nothing but a Write.
func copiedBy(w *vecio.Writer) int64 {
	s := w.Stats()
	return s.CopiedBytes + s.Coalesced
}

func (g *gathered) close() {
	_ = g.w.Close()
	g.onConn.close()
}
