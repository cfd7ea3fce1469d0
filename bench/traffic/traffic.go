// Package traffic is what the benchmark's sink and load have in common: the content that flows between them, and
// the lines that request it.
//
// The content is a table of pseudo-random bytes that repeats for ever. Its period is a prime just below 64 KiB. So
// if a page, a pipe slot or a buffer is lost, doubled or out of place, the bytes differ, unless they moved by a
// multiple of [Period]. Each stream starts at another place in the table. So bytes that come out of the wrong
// connection are noticed, too. A check is one comparison of memory, which is cheap enough for every byte.
package traffic

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
)

const (
	// Period is the number of bytes after which the content repeats.
	Period = 65521
	// MaxChunk is the longest slice that Stream.Next returns, in bytes.
	MaxChunk = 128 << 10
	// stride spreads consecutive seeds over the table. It is coprime to Period, so Period consecutive seeds start
	// at different places.
	stride = 40503
)

// table has the content once. Then the beginning follows, long enough for a chunk that starts at the last byte. It
// must not be written to.
var table = sync.OnceValue(func() []byte {
	source := rand.NewChaCha8([32]byte([]byte("penstock's benchmark, content, 1")))
	t := make([]byte, Period, Period+MaxChunk)
	_, _ = source.Read(t) // it never fails (math/rand/v2)
	for len(t) < cap(t) {
		t = append(t, t[:min(Period, cap(t)-len(t))]...)
	}
	return t
})

// Stream is a position in the content. Make one with NewStream: the zero value cannot be used. It is not safe for
// concurrent use.
type Stream struct {
	table []byte
	at    int // below Period
}

// NewStream returns the content for a seed, from the beginning.
func NewStream(seed uint32) *Stream {
	return &Stream{table: table(), at: int(uint64(seed) * stride % Period)}
}

// Next returns the next n bytes of content, and moves past them. n is at most MaxChunk. All callers share the
// slice, so they must not write to it.
func (s *Stream) Next(n int) []byte {
	b := s.table[s.at : s.at+min(n, MaxChunk)]
	s.at = (s.at + len(b)) % Period
	return b
}

// Back moves back over the last n bytes of content.
func (s *Stream) Back(n int) { s.at = ((s.at-n)%Period + Period) % Period }

// Check reports whether b is the next len(b) bytes of content, and moves past
// them.
func (s *Stream) Check(b []byte) bool {
	for len(b) > 0 {
		want := s.Next(len(b))
		if !bytes.Equal(b[:len(want)], want) {
			return false
		}
		b = b[len(want):]
	}
	return true
}

// The words that begin a request.
const (
	bulkWord = "bulk "
	onceWord = "once "
)

// MaxLine is the size of the longest request line of any kind.
const MaxLine = 256

// TrailerSize is the length of the trailer of a bulk stream, in bytes.
const TrailerSize = 8

// AppendTrailer appends the trailer that follows n bytes of content at the end of a bulk stream. It contains n, so
// the client knows that the stream is complete.
func AppendTrailer(b []byte, n int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(n)) }

// ParseTrailer parses a trailer; b holds TrailerSize bytes.
func ParseTrailer(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }

// AppendBulk appends the line that asks the server for the endless content of seed. When the client half-closes,
// the server ends the stream with a trailer.
func AppendBulk(b []byte, seed uint32) []byte { return appendNumber(b, bulkWord, uint64(seed)) }

// ParseBulk reads the line that AppendBulk wrote.
func ParseBulk(line []byte) (seed uint32, err error) {
	n, err := parseNumber(line, bulkWord, 32)
	return uint32(n), err
}

// AppendOnce appends the line that asks a sink for n bytes back, beginning with the line. Then the sink closes the
// connection before the client does.
func AppendOnce(b []byte, n uint32) []byte { return appendNumber(b, onceWord, uint64(n)) }

// ParseOnce reads the line that AppendOnce wrote.
func ParseOnce(line []byte) (n uint32, err error) {
	v, err := parseNumber(line, onceWord, 32)
	return uint32(v), err
}

func appendNumber(b []byte, word string, n uint64) []byte {
	return append(strconv.AppendUint(append(b, word...), n, 10), '\n')
}

func parseNumber(line []byte, word string, bits int) (uint64, error) {
	number, found := bytes.CutPrefix(line, []byte(word))
	if !found {
		return 0, fmt.Errorf("bench: %q does not begin with %q", line, word)
	}
	n, err := strconv.ParseUint(string(bytes.TrimRight(number, "\r\n")), 10, bits)
	if err != nil {
		return 0, fmt.Errorf("bench: the number in %q: %w", line, err)
	}
	return n, nil
}

// Kind is the kind of a client's request.
type Kind uint8

// The kinds of requests.
const (
	KindUnknown Kind = iota // too few bytes to classify
	KindBulk                // an endless stream of content
	KindOnce                // the server sends some bytes back, then it closes
	KindEcho                // the server sends all bytes back
)

// words are the beginnings of all kinds except KindEcho.
var words = []struct {
	word string
	kind Kind
}{
	{bulkWord, KindBulk},
	{onceWord, KindOnce},
}

// Classify returns the kind of a connection that begins with b. It returns KindUnknown while more bytes could
// change the answer.
func Classify(b []byte) Kind {
	kind := KindEcho
	for _, w := range words {
		switch {
		case len(b) >= len(w.word) && string(b[:len(w.word)]) == w.word:
			return w.kind
		case len(b) < len(w.word) && string(b) == w.word[:len(b)]:
			kind = KindUnknown
		}
	}
	return kind
}

// A proxy may send a header of the PROXY protocol, version 2, before the request of a connection.
const (
	proxySignature  = "\r\n\r\n\x00\r\nQUIT\n"
	proxyHeaderSize = len(proxySignature) + 4
)

// ProxyHeader returns how many bytes of b come before the request. whole is false while more bytes could change
// the answer.
func ProxyHeader(b []byte) (n int, whole bool) {
	if head := b[:min(len(b), len(proxySignature))]; len(b) == 0 || !strings.HasPrefix(proxySignature, string(head)) {
		return 0, len(b) > 0
	}
	if len(b) < proxyHeaderSize {
		return 0, false
	}
	n = proxyHeaderSize + int(binary.BigEndian.Uint16(b[proxyHeaderSize-2:]))
	return min(n, len(b)), n <= len(b)
}

// Plain reports whether content that begins with b can be told from a PROXY header and from every request.
func Plain(b []byte) bool { return Classify(b) == KindEcho && b[0] != proxySignature[0] }
