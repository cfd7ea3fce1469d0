package compare

import (
	"bytes"
	"encoding/binary"
	"math"
)

// lines has an answer for each line, with its end.
type lines struct{ out sink }

func (p *lines) parse(b []byte) error {
	for len(b) > 0 {
		if !p.out.open {
			p.out.begin(p.out.s.report.name("line"))
		}
		n := bytes.IndexByte(b, '\n') + 1
		if n == 0 {
			p.out.put(b)
			return nil
		}
		p.out.put(b[:n])
		p.out.end()
		b = b[n:]
	}
	return nil
}

func (p *lines) eof() {
	if p.out.open {
		p.out.end()
	}
}

// maxOffset is the largest offset of a length in a frame.
const maxOffset = 64

// A prefix is the place of the length in a frame.
type prefix struct {
	offset, width int
	little        bool
	whole         bool // it counts the header too
}

// length returns the length of the body of a frame by its header.
func (p *prefix) length(header []byte) (n uint64, err error) {
	var b [8]byte
	field := header[p.offset:]
	if p.little {
		copy(b[:], field[:p.width])
		n = binary.LittleEndian.Uint64(b[:])
	} else {
		copy(b[8-p.width:], field[:p.width])
		n = binary.BigEndian.Uint64(b[:])
	}
	if header := uint64(p.offset + p.width); p.whole {
		if n < header {
			return 0, unexpected("a frame of %d bytes is shorter than its header of %d", n, header)
		}
		n -= header
	}
	if n > math.MaxInt64 {
		return 0, unexpected("a frame of %d bytes is too long", n)
	}
	return n, nil
}

// lengths has an answer for each frame with its length before it.
type lengths struct {
	prefix
	out    sink
	header [maxOffset + 8]byte
	n      int    // bytes of the header that are there
	rest   uint64 // bytes of the body that are missing
}

func (p *lengths) parse(b []byte) error {
	size := p.offset + p.width
	for len(b) > 0 {
		if p.n < size {
			if !p.out.open {
				p.out.begin(p.out.s.report.name("frame"))
			}
			n := copy(p.header[p.n:size], b)
			p.n, b = p.n+n, b[n:]
			if p.n < size {
				return nil
			}
			var err error
			if p.rest, err = p.length(p.header[:size]); err != nil {
				return err
			}
			p.out.put(p.header[:p.offset])
		}
		n := min(uint64(len(b)), p.rest)
		p.out.put(b[:n])
		b = b[n:]
		if p.rest -= n; p.rest == 0 {
			p.out.end()
			p.n = 0
		}
	}
	return nil
}

// eof leaves a frame open that has no end: the flow settles it.
func (p *lengths) eof() {}
