package wasm

import (
	"encoding/binary"
	"fmt"
)

// A reader reads the binary format of WebAssembly (section 5 of its specification). After an error it returns zeroes.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
	}
	r.b = nil
}

func (r *reader) take(n uint32) []byte {
	if uint64(n) > uint64(len(r.b)) {
		r.fail("it is truncated")
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// u32 reads an unsigned LEB128.
func (r *reader) u32() uint32 {
	v, n := binary.Uvarint(r.b[:min(len(r.b), 5)])
	if n <= 0 || v>>32 != 0 {
		r.fail("a number is malformed")
		return 0
	}
	r.b = r.b[n:]
	return uint32(v)
}

// signed reads a signed LEB128 to its end.
func (r *reader) signed() {
	for n := 0; r.byte()&0x80 != 0; n++ {
		if n == 10 {
			r.fail("a number is malformed")
		}
	}
}

func (r *reader) name() string { return string(r.take(r.u32())) }

// each calls f for each element of a vector, until there is an error. It checks the number of elements, each of at least a
// byte, because wazero makes room for the number that it reads.
func (r *reader) each(most uint32, f func()) (n uint32) {
	n = r.u32()
	switch {
	case uint64(n) > uint64(len(r.b)):
		r.fail("a vector is longer than the module")
	case n > most:
		r.fail("a vector has %d elements, more than %d", n, most)
	}
	for range n {
		if r.err != nil {
			break
		}
		f()
	}
	return n
}

func appendU32(b []byte, v uint32) []byte { return binary.AppendUvarint(b, uint64(v)) }

// appendI32 appends a signed LEB128.
func appendI32(b []byte, v int32) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}
