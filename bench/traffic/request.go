package traffic

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
)

// bulkWord begins the line that asks for an endless stream of content.
const bulkWord = "bulk "

// MaxRequest is the longest bulk request, in bytes, its newline included.
const MaxRequest = len(bulkWord) + len("4294967295\n")

// TrailerSize is the length of what ends a bulk stream, in bytes.
const TrailerSize = 8

// AppendTrailer appends what follows n bytes of content at the end of a bulk
// stream: their number, by which the client knows that the end is the end.
func AppendTrailer(b []byte, n int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(n)) }

// ParseTrailer reads what AppendTrailer wrote; b holds TrailerSize bytes.
func ParseTrailer(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }

// AppendBulk appends the line that asks the origin for the endless content of
// seed; when the client half-closes, the origin ends the stream by a trailer.
func AppendBulk(b []byte, seed uint32) []byte {
	return append(strconv.AppendUint(append(b, bulkWord...), uint64(seed), 10), '\n')
}

// ParseBulk reads the line that AppendBulk wrote.
func ParseBulk(line []byte) (seed uint32, err error) {
	word, found := bytes.CutPrefix(line, []byte(bulkWord))
	if !found {
		return 0, fmt.Errorf("bench: %q is not a bulk request", line)
	}
	n, err := strconv.ParseUint(string(bytes.TrimRight(word, "\r\n")), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("bench: seed of a bulk request: %w", err)
	}
	return uint32(n), nil
}

// Kind is what a client asks of the origin.
type Kind uint8

// What the first bytes of a connection say.
const (
	KindUnknown Kind = iota // too few bytes to tell
	KindBulk                // an endless stream of content
	KindHTTP                // an HTTP GET or HEAD, for people with curl
	KindEcho                // anything else comes back as it is
)

// Classify tells what a connection that begins with b wants. It answers
// KindUnknown as long as more bytes could still change the answer.
func Classify(b []byte) Kind {
	kind := KindEcho
	for _, c := range []struct {
		word string
		kind Kind
	}{{bulkWord, KindBulk}, {"GET ", KindHTTP}, {"HEAD ", KindHTTP}} {
		switch {
		case len(b) >= len(c.word) && string(b[:len(c.word)]) == c.word:
			return c.kind
		case len(b) < len(c.word) && string(b) == c.word[:len(b)]:
			kind = KindUnknown
		}
	}
	return kind
}
