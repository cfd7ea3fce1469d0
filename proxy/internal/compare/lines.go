package compare

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
)

// A stream has no frames: the whole of it is one answer.
type stream struct {
	out  sink
	name *tally
}

func (p *stream) parse(b []byte) error {
	if !p.out.open {
		p.out.begin(p.name)
	}
	p.out.put(b)
	return nil
}

func (p *stream) eof() {
	if p.out.open {
		p.out.end()
	}
}

// lines has an answer for each line, with its end.
type lines struct{ stream }

func (p *lines) parse(b []byte) error {
	for len(b) > 0 && p.out.s.reason == Going {
		if !p.out.open {
			p.out.begin(p.name)
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

// MaxOffset is the largest offset of a length in a frame.
const MaxOffset = 64

// A Length is the place of the length in a frame.
type Length struct {
	Offset, Width int  // at most MaxOffset; 1, 2, 4 or 8
	Little        bool // the byte order
	Whole         bool // it counts the header too
}

// of returns the length of the body of a frame by its header.
func (l *Length) of(header []byte) (n uint64, err error) {
	var b [8]byte
	field := header[l.Offset:]
	if l.Little {
		copy(b[:], field[:l.Width])
		n = binary.LittleEndian.Uint64(b[:])
	} else {
		copy(b[8-l.Width:], field[:l.Width])
		n = binary.BigEndian.Uint64(b[:])
	}
	if header := uint64(l.Offset + l.Width); l.Whole {
		if n < header {
			return 0, fmt.Errorf("a frame of %d bytes is shorter than its header of %d", n, header)
		}
		n -= header
	}
	if n > math.MaxInt64 {
		return 0, fmt.Errorf("a frame of %d bytes is too long", n)
	}
	return n, nil
}

// lengths has an answer for each frame with its length before it, or a part of an answer.
type lengths struct {
	Length
	out    sink
	name   *tally // nil: the frames are parts of an answer that has begun
	header [MaxOffset + 8]byte
	n      int    // bytes of the header that are there
	rest   uint64 // bytes of the body that are missing
}

func (p *lengths) parse(b []byte) (err error) {
	size := p.Offset + p.Width
	for len(b) > 0 && p.out.s.reason == Going {
		if p.n < size {
			if p.name != nil && !p.out.open {
				p.out.begin(p.name)
			}
			n := copy(p.header[p.n:size], b)
			p.n, b = p.n+n, b[n:]
			if p.n < size {
				return nil
			}
			if p.rest, err = p.of(p.header[:size]); err != nil {
				return err
			}
			if p.name == nil {
				p.out.mark(p.header[:p.Offset])
			} else {
				p.out.put(p.header[:p.Offset])
			}
		}
		n := min(uint64(len(b)), p.rest)
		p.out.put(b[:n])
		b = b[n:]
		if p.rest -= n; p.rest > 0 {
			return nil
		}
		if p.n = 0; p.name == nil {
			p.out.unit()
		} else {
			p.out.end()
		}
	}
	return nil
}

// eof leaves a frame open that has no end: the flow settles it.
func (p *lengths) eof() {}
