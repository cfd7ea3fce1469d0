package vecio

import "io"

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
