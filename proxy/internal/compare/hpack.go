package compare

import (
	"golang.org/x/net/http2/hpack"
)

const (
	tableBytes = 4096 // the largest dynamic table, by HPACK's way of counting
	entryBytes = 32   // that HPACK counts for an entry beside its texts
	fieldBytes = 4096 // the longest field, as it is encoded

	headBytes  = 16 << 10 // the longest head, as it is decoded
	headFields = 256      // the most fields of a head
)

// static is HPACK's table of fixed fields (RFC 7541, appendix A), as package hpack has it.
var static = func() (all []struct{ name, value []byte }) {
	d := hpack.NewDecoder(0, func(f hpack.HeaderField) {
		all = append(all, struct{ name, value []byte }{[]byte(f.Name), []byte(f.Value)})
	})
	for i := range 61 {
		_, _ = d.Write([]byte{0x80 | byte(i+1)}) // TestStaticTable holds that it has all of them
	}
	return all
}()

// An entry is the lengths of a field's texts in a table.
type entry struct{ name, value uint16 }

func (e entry) texts() int { return int(e.name) + int(e.value) }

// A table is HPACK's dynamic table: the texts of its fields, the oldest first. It has the memory
// that HPACK counts, where package hpack has up to six times as much in its maps.
type table struct {
	texts   []byte
	entries []entry
	size    int // as HPACK counts
	limit   int
}

// add adds a field, and removes the oldest ones for which there is no room.
func (t *table) add(s *Session, name, value []byte) {
	size := len(name) + len(value) + entryBytes
	t.shrink(max(t.limit-size, 0))
	if size > t.limit {
		return
	}
	if t.texts == nil {
		if !s.purse.take(tableBytes + 4*tableBytes/entryBytes) {
			s.stop(Full)
			return
		}
		t.texts, t.entries = make([]byte, 0, tableBytes), make([]entry, 0, tableBytes/entryBytes)
	}
	t.texts = append(append(t.texts, name...), value...)
	t.entries = append(t.entries, entry{uint16(len(name)), uint16(len(value))})
	t.size += size
}

// shrink removes the oldest fields until the table has no more than size.
func (t *table) shrink(size int) {
	n, texts := 0, 0
	for t.size > size {
		e := t.entries[n]
		t.size -= e.texts() + entryBytes
		texts += e.texts()
		n++
	}
	if n > 0 {
		t.texts = t.texts[:copy(t.texts, t.texts[texts:])]
		t.entries = t.entries[:copy(t.entries, t.entries[n:])]
	}
}

// at returns the field with an index, of both tables. Its texts are those of the table.
func (t *table) at(i uint64) (name, value []byte, err error) {
	if i == 0 || i > uint64(len(static)+len(t.entries)) {
		return nil, nil, unexpected("a head has a field with index %d", i)
	}
	if i <= uint64(len(static)) {
		f := &static[i-1]
		return f.name, f.value, nil
	}
	end := len(t.texts)
	n := len(t.entries) - 1
	for range i - uint64(len(static)) - 1 {
		end -= t.entries[n].texts()
		n--
	}
	e := t.entries[n]
	text := t.texts[end-e.texts() : end]
	return text[:e.name], text[e.name:], nil
}

// A headDecoder reads the fields of heads that come in pieces. Package hpack decodes Huffman's code.
type headDecoder struct {
	table
	s    *Session
	emit func(name, value []byte)
	rest text // the begin of a field

	decoded, count int // bytes and fields of the head
	out            appender
}

func newHeadDecoder(s *Session, emit func(name, value []byte)) headDecoder {
	return headDecoder{s: s, emit: emit, table: table{limit: tableBytes}}
}

// write reads bytes of a head.
func (d *headDecoder) write(b []byte) error {
	for len(b) > 0 && d.s.reason == Going {
		piece := b
		if len(d.rest.b) > 0 { // go on with few bytes, as all of them are copied
			piece = b[:min(len(b), 64)]
			if !d.rest.grow(d.s, len(piece), 2*fieldBytes) {
				return nil
			}
			d.rest.b = append(d.rest.b, piece...)
			b = b[len(piece):]
			piece = d.rest.b
		} else {
			b = nil
		}
		n, err := d.fields(piece)
		if err != nil {
			return err
		}
		left := piece[n:]
		if len(left) > fieldBytes {
			d.s.stop(Full)
			return nil
		}
		if len(d.rest.b) > 0 {
			d.rest.b = d.rest.b[:copy(d.rest.b, left)]
		} else if len(left) > 0 {
			if !d.rest.grow(d.s, len(left), 2*fieldBytes) {
				return nil
			}
			d.rest.b = append(d.rest.b, left...)
		}
	}
	return nil
}

// end is the end of a head.
func (d *headDecoder) end() error {
	if len(d.rest.b) > 0 {
		return unexpected("a head ends within a field")
	}
	d.rest.next(d.s)
	d.decoded, d.count = 0, 0
	return nil
}

// fields reads the fields that are there, and returns how many bytes they had.
func (d *headDecoder) fields(b []byte) (n int, err error) {
	for n < len(b) && d.s.reason == Going {
		m, err := d.field(b[n:])
		if m == 0 || err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

// field reads a field, and returns how many bytes it had: none if it is not all there.
func (d *headDecoder) field(b []byte) (n int, err error) {
	bits, indexed, added := 4, false, false
	switch c := b[0]; {
	case c&0x80 != 0:
		bits, indexed = 7, true
	case c&0x40 != 0:
		bits, added = 6, true
	case c&0x20 != 0:
		return d.resize(b)
	}
	index, n, err := varint(b, bits)
	if n == 0 || err != nil {
		return 0, err
	}
	if indexed {
		name, value, err := d.at(index)
		if err == nil {
			d.found(name, value)
		}
		return n, err
	}
	return d.literal(b, n, index, added)
}

// literal reads a field with a value of its own, whose texts begin at n.
func (d *headDecoder) literal(b []byte, n int, index uint64, added bool) (int, error) {
	out := d.s.scratch[:0]
	if index > 0 {
		name, _, err := d.at(index)
		if err != nil || !d.room(out, len(name)) {
			return n, err
		}
		out = append(d.s.scratch[:0], name...)
	} else {
		var m int
		var err error
		if out, m, err = d.string(out, b[n:]); m == 0 || err != nil {
			return 0, err
		}
		n += m
	}
	name := len(out)
	out, m, err := d.string(out, b[n:])
	if m == 0 || err != nil {
		return 0, err
	}
	if n+m > fieldBytes {
		d.s.stop(Full)
	}
	d.found(out[:name], out[name:])
	if added && d.s.reason == Going {
		d.s.spendBytes(0, len(out), byteCost)
		d.table.add(d.s, out[:name], out[name:])
	}
	return n + m, nil
}

// room makes room in the scratch for n more bytes than out has, which are those at its begin. Memory that a long field
// takes is kept, so that fields leave no garbage.
func (d *headDecoder) room(out []byte, n int) bool {
	need := len(out) + n
	if need <= cap(d.s.scratch) {
		return true
	}
	size := 2 * scratchBytes
	for size < need {
		size *= 2
	}
	if !d.s.purse.take(size) {
		d.s.stop(Full)
		return false
	}
	d.s.purse.give(cap(d.s.scratch))
	d.s.scratch = append(make([]byte, 0, size), out...)
	return true
}

func (d *headDecoder) found(name, value []byte) {
	d.count++
	d.decoded += len(name) + len(value)
	d.s.spendBytes(fieldCost, len(name)+len(value), byteCost)
	if d.count > headFields || d.decoded > headBytes {
		d.s.stop(Full)
	}
	if d.s.reason == Going {
		d.emit(name, value)
	}
}

// resize reads a change of the table's size.
func (d *headDecoder) resize(b []byte) (n int, err error) {
	size, n, err := varint(b, 5)
	if n == 0 || err != nil {
		return 0, err
	}
	if size > tableBytes {
		d.s.stop(Full)
		return n, nil
	}
	d.limit = int(size)
	d.shrink(d.limit)
	return n, nil
}

// string adds a string to dst, and returns how many bytes it had: none if it is not all there.
func (d *headDecoder) string(dst, b []byte) (out []byte, n int, err error) {
	if len(b) == 0 {
		return dst, 0, nil
	}
	length, n, err := varint(b, 7)
	if n == 0 || err != nil {
		return dst, 0, err
	}
	if length > fieldBytes {
		d.s.stop(Full)
		return dst, 0, nil
	}
	if uint64(len(b)-n) < length {
		return dst, 0, nil
	}
	text := b[n : n+int(length)]
	coded := b[0]&0x80 != 0
	size := len(text)
	if coded {
		size = size*8/5 + 1 // the shortest code has five bits
		d.s.spendBytes(0, len(text), huffmanCost)
	}
	if d.s.reason != Going || !d.room(dst, size) {
		return dst, 0, nil
	}
	dst = d.s.scratch[:len(dst)]
	if !coded {
		return append(dst, text...), n + int(length), nil
	}
	d.out.b = dst
	_, err = hpack.HuffmanDecode(&d.out, text)
	return d.out.b, n + int(length), err
}

// An appender is a writer to a slice.
type appender struct{ b []byte }

func (a *appender) Write(b []byte) (int, error) {
	a.b = append(a.b, b...)
	return len(b), nil
}

// varint reads an integer with so many bits in its first byte, and returns how many bytes it had: none
// if it is not all there.
func varint(b []byte, bits int) (v uint64, n int, err error) {
	limit := uint64(1)<<bits - 1
	if v = uint64(b[0]) & limit; v < limit {
		return v, 1, nil
	}
	for i, c := range b[1:] {
		if i == 9 {
			return 0, 0, unexpected("a head has a number of more than ten bytes")
		}
		v += uint64(c&0x7f) << (7 * i)
		if c&0x80 == 0 {
			return v, i + 2, nil
		}
	}
	return 0, 0, nil
}
