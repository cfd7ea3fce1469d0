package compare

import (
	"bytes"
	"math"
)

// lineBytes is the longest line of a head.
const lineBytes = 8 << 10

// A text is a line that comes in pieces.
type text struct{ b []byte }

// add adds the bytes up to the line's end, and returns how many they were, and whether it was
// there. A line that is too long is an error, and one for which there is no memory ends the comparison.
func (l *text) add(s *Session, b []byte) (n int, done bool, err error) {
	s.spend(lineCost)
	n = bytes.IndexByte(b, '\n') + 1
	if done = n > 0; !done {
		n = len(b)
	}
	if len(l.b)+n > lineBytes {
		return 0, false, unexpected("a line has more than %d bytes", lineBytes)
	}
	if !l.grow(s, n, lineBytes) {
		return len(b), false, nil
	}
	l.b = append(l.b, b[:n]...)
	return n, done, nil
}

// grow makes room for n more bytes. Without memory, or beyond the bound, comparing ends.
func (l *text) grow(s *Session, n, bound int) bool {
	need := len(l.b) + n
	if need <= cap(l.b) {
		return true
	}
	size := 256
	for size < need {
		size *= 2
	}
	if need > bound || !s.purse.take(size) {
		s.stop(Full)
		return false
	}
	s.purse.give(cap(l.b))
	l.b = append(make([]byte, 0, size), l.b...)
	return true
}

// next begins the next line. A long one's memory is given back.
func (l *text) next(s *Session) {
	if l.b = l.b[:0]; cap(l.b) > 1<<10 {
		s.purse.give(cap(l.b))
		l.b = nil
	}
}

// trim returns a line without its end.
func trim(b []byte) []byte { return bytes.TrimRight(b, "\r\n") }

// A bodyMode says where a body ends.
type bodyMode uint8

const (
	noBody     bodyMode = iota
	counted             // after so many bytes
	chunked             // with a chunk of no bytes, and trailers
	untilClose          // with the stream
)

// A body is the state of a message's body.
type body struct {
	mode  bodyMode
	size  int64 // Content-Length, -1 if there is none
	rest  int64 // of the body or the chunk, that are missing
	stage uint8 // of a chunked body
	line  text
}

// The stages of a chunked body.
const (
	chunkSize uint8 = iota
	chunkData
	chunkEnd
	trailers
)

// header takes a line of the head, whose name is in lower case.
func (y *body) header(name, value []byte) error {
	switch string(name) {
	case "content-length":
		n, err := decimal(value)
		if err != nil || y.size >= 0 && y.size != n {
			return unexpected("the length of a body is %q", value)
		}
		y.size = n
	case "transfer-encoding":
		if codings := bytes.ToLower(value); bytes.HasSuffix(codings, []byte("chunked")) {
			y.mode = chunked
		} else {
			y.mode = untilClose
		}
	}
	return nil
}

// begin begins a head.
func (y *body) begin() { y.mode, y.size, y.rest, y.stage = noBody, -1, 0, chunkSize }

// start begins the body after the head, and reports whether there is one. Without a length it is as
// the mode says.
func (y *body) start(without bodyMode) bool {
	switch {
	case y.mode != noBody:
	case y.size >= 0:
		y.mode, y.rest = counted, y.size
		return y.size > 0
	default:
		y.mode = without
	}
	return y.mode != noBody
}

// read returns the next bytes of the body, or of a trailer with its end, how many of b they take, and
// whether the body has ended.
func (y *body) read(s *Session, b []byte) (data []byte, n int, done bool, err error) {
	switch {
	case y.mode == untilClose:
		return b, len(b), false, nil
	case y.mode == counted || y.stage == chunkData:
		n = int(min(int64(len(b)), y.rest))
		y.rest -= int64(n)
		if y.mode == chunked && y.rest == 0 {
			y.stage = chunkEnd
		}
		return b[:n], n, y.mode == counted && y.rest == 0, nil
	}
	n, ended, err := y.line.add(s, b)
	if !ended || err != nil {
		return nil, n, false, err
	}
	line := y.line.b
	defer y.line.next(s)
	switch y.stage {
	case chunkSize:
		return nil, n, false, y.chunk(trim(line))
	case chunkEnd:
		if len(trim(line)) > 0 {
			return nil, n, false, unexpected("a chunk is longer than its size")
		}
		y.stage = chunkSize
		return nil, n, false, nil
	}
	return line, n, len(trim(line)) == 0, nil
}

// chunk reads the size of a chunk.
func (y *body) chunk(line []byte) error {
	line, _, _ = bytes.Cut(line, []byte(";"))
	line = bytes.TrimRight(line, " \t")
	if len(line) == 0 || len(line) > 15 {
		return unexpected("the size of a chunk is %q", line)
	}
	y.rest, y.stage = 0, chunkData
	for _, c := range line {
		digit := bytes.IndexByte([]byte("0123456789abcdef"), c|0x20)
		if c >= '0' && c <= '9' {
			digit = int(c - '0')
		}
		if digit < 0 || c < '0' {
			return unexpected("the size of a chunk is %q", line)
		}
		y.rest = y.rest<<4 + int64(digit)
	}
	if y.rest == 0 {
		y.stage = trailers
	}
	return nil
}

// decimal returns a number without a sign.
func decimal(b []byte) (n int64, err error) {
	for _, c := range b {
		if c < '0' || c > '9' || n > (math.MaxInt64-9)/10 {
			return 0, errNumber
		}
		n = 10*n + int64(c-'0')
	}
	if len(b) == 0 {
		return 0, errNumber
	}
	return n, nil
}

// field splits a line of a head. The name is in lower case, in buf after what is there.
func field(buf, line []byte) (name, value []byte, ok bool) {
	name, value, ok = bytes.Cut(trim(line), []byte(":"))
	if !ok || len(name) == 0 || len(name)+len(buf) > cap(buf) {
		return nil, value, ok && len(name) > 0
	}
	for _, c := range name {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		buf = append(buf, c)
	}
	return buf, bytes.Trim(value, " \t"), true
}
