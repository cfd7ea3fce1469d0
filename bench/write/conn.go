package write

import (
	"bufio"
	"net"
)

// onConn writes to a connection of package net.
type onConn struct {
	conn    *net.TCPConn // owned
	batch   func(pieces [][]byte) error
	batches int64
	copies  int64 // bytes copied in user space for each batch
}

func (w *onConn) write(from *source, batches int64) error {
	for range batches {
		if err := w.batch(from.batch()); err != nil {
			return err
		}
		w.batches++
	}
	return nil
}

func (w *onConn) copied() int64              { return w.batches * w.copies }
func (w *onConn) end() (*net.TCPConn, error) { return w.conn, w.conn.CloseWrite() }
func (w *onConn) close()                     { _ = w.conn.Close() }

// openPlain writes each piece by itself.
func openPlain(c *net.TCPConn, _ []int) (writer, error) {
	return &onConn{conn: c, batch: func(pieces [][]byte) error {
		for _, p := range pieces {
			if _, err := c.Write(p); err != nil {
				return err
			}
		}
		return nil
	}}, nil
}

// openBufio writes through a bufio.Writer with a buffer of so many bytes.
func openBufio(size int) func(*net.TCPConn, []int) (writer, error) {
	return func(c *net.TCPConn, pieces []int) (writer, error) {
		b := bufio.NewWriterSize(c, size)
		return &onConn{conn: c, copies: bufioCopies(size, pieces), batch: func(pieces [][]byte) error {
			for _, p := range pieces {
				if _, err := b.Write(p); err != nil {
					return err
				}
			}
			return b.Flush()
		}}, nil
	}
}

// bufioCopies is how many bytes of a batch a bufio.Writer copies that is empty when
// the batch begins: all but those of a piece that does not fit while nothing is
// buffered, which is written as it is (bufio.Writer.Write).
func bufioCopies(size int, pieces []int) (copied int64) {
	buffered := 0
	for _, n := range pieces {
		for n > size-buffered {
			if buffered == 0 {
				n = 0
				break
			}
			copied += int64(size - buffered)
			n -= size - buffered
			buffered = 0
		}
		copied += int64(n)
		buffered += n
	}
	return copied
}

// openBuffers writes each batch by net.Buffers, which consumes its argument: so the
// array is filled anew for each batch, and kept.
func openBuffers(c *net.TCPConn, pieces []int) (writer, error) {
	array := make(net.Buffers, 0, len(pieces))
	left := new(net.Buffers) // its header would otherwise be allocated for each batch
	return &onConn{conn: c, batch: func(pieces [][]byte) error {
		*left = append(array[:0], pieces...)
		_, err := left.WriteTo(c)
		return err
	}}, nil
}
