package firstbytes

// Bounds of patterns.
const (
	MaxOffset  = 4095 // the largest offset
	MaxPattern = 256  // the most bytes
)

// A Pattern is bytes at a place. It is not to be changed once a recogniser has it.
type Pattern struct {
	// Offset is that of the first byte, at most MaxOffset.
	Offset int
	// Bytes are the ones there; at most MaxPattern.
	Bytes []byte
	// Mask has a bit set where one counts; it is as long as Bytes. Nil: all count.
	Mask []byte
}

// Equal reports whether both are the same.
func (p *Pattern) Equal(o *Pattern) bool {
	return p.Offset == o.Offset && string(p.Bytes) == string(o.Bytes) && string(p.Mask) == string(o.Mask)
}

func (p *Pattern) end() int { return p.Offset + len(p.Bytes) }

// look compares the bytes as far as they are there.
func (p *Pattern) look(b []byte) Verdict {
	for i, want := range p.Bytes {
		if p.Offset+i >= len(b) {
			return Open
		}
		mask := byte(0xff)
		if p.Mask != nil {
			mask = p.Mask[i]
		}
		if (b[p.Offset+i]^want)&mask != 0 {
			return No
		}
	}
	return Yes
}
