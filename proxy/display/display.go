// Package display makes foreign texts safe to show: names of files, of DNS and of endpoints, data from clients, and
// errors that quote any of these. A terminal obeys control characters, a log has one line for each record, and a table
// one row for each entry.
//
// Names are checked with [Check] on input. On output every text goes through [Text], or through a [Writer] if it is
// already formatted.
package display

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxName is the longest name of an endpoint or a zone, in bytes. A DNS name is shorter.
const MaxName = 255

// Plural returns a number of things.
func Plural(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", more)
}

// Check returns an error of one line for a text that is longer than limit bytes, or has an invisible character other
// than a space.
func Check(text string, limit int) error {
	if len(text) > limit {
		return fmt.Errorf("%q… is %d bytes long: write at most %d", start(text), len(text), limit)
	}
	for i, r := range text {
		if !seen(r, text[i:]) {
			return fmt.Errorf("%q has characters that are not printable: leave them out", start(text))
		}
	}
	return nil
}

// start returns the part of a text that an error quotes.
func start(text string) string {
	const most = 80
	for i := range text {
		if i > most {
			return text[:i]
		}
	}
	return text
}

// seen reports whether the first character of a text is visible. A replacement character for invalid bytes is not.
func seen(r rune, text string) bool {
	return unicode.IsPrint(r) && (r != utf8.RuneError || strings.HasPrefix(text, "\ufffd"))
}

// Text returns a text as one line of visible characters. Other characters are written as in Go: \n, \x1b, \u202e.
func Text(text string) string { return escape(text, "") }

// Excerpt returns a text as shown by Text, cut to limit bytes. If it is cut, it ends with an ellipsis.
func Excerpt(text string, limit int) string {
	shown := Text(text[:min(len(text), limit)]) // each byte gives at least one
	if len(shown) <= limit && len(text) <= limit {
		return shown
	}
	const more = "…"
	cut := 0
	for i := range shown {
		if i > limit-len(more) {
			break
		}
		cut = i
	}
	return shown[:cut] + more
}

// Lines returns a text of several lines with visible characters and line ends only.
func Lines(text string) string { return escape(text, "\n") }

func escape(text, but string) string {
	shown := func(r rune, rest string) bool {
		return seen(r, rest) || strings.ContainsRune(but, r) && r < utf8.RuneSelf
	}
	i := 0
	for at, r := range text {
		if !shown(r, text[at:]) {
			break
		}
		i = at + utf8.RuneLen(r)
	}
	if i == len(text) {
		return text
	}
	var b strings.Builder
	b.WriteString(text[:i])
	for len(text[i:]) > 0 {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case shown(r, text[i:]):
			b.WriteString(text[i : i+size])
		case r == utf8.RuneError:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += size
	}
	return b.String()
}

// A Writer passes on formatted text, JSON or lines of a log. Characters that a terminal obeys, or that end a line for
// some programs, are written as in JSON (\u009b), so that JSON keeps its meaning. Line ends and tabs stay. A Writer is
// safe for concurrent use only if the underlying writer is. Each Write must have whole characters.
type Writer struct{ to io.Writer }

// NewWriter returns a Writer that writes to another one.
func NewWriter(to io.Writer) Writer { return Writer{to} }

// Write implements [io.Writer]. It counts the bytes of p, not the written bytes.
func (w Writer) Write(p []byte) (n int, err error) {
	if harmless(p) {
		return w.to.Write(p)
	}
	var b strings.Builder
	for _, r := range string(p) {
		if obeyed(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r) // invalid bytes become U+FFFD
		}
	}
	if _, err := io.WriteString(w.to, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// harmless reports whether a text has no character that a terminal obeys, and no invalid UTF-8. Most texts have only
// ASCII.
func harmless(p []byte) bool {
	for i, c := range p {
		if c >= utf8.RuneSelf || c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
			return !bytes.ContainsFunc(p[i:], obeyed) && utf8.Valid(p[i:])
		}
	}
	return true
}

// obeyed reports whether a terminal may obey a character instead of showing it: control characters, and characters that
// change the direction of text or end a line.
func obeyed(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case unicode.IsControl(r), r == '\u2028', r == '\u2029', r == '\u061c', r == '\u200e', r == '\u200f':
		return true
	}
	return r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}

// Bytes writes a number of bytes with three digits, in decimal units: 999 B, 1.23 kB, 12.3 GB.
func Bytes(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	x := float64(n)
	units := []string{"kB", "MB", "GB", "TB", "PB", "EB"}
	unit := ""
	for _, unit = range units {
		if x /= 1000; x < 999.5 {
			break
		}
	}
	switch {
	case x < 9.995:
		return Fixed(x, 2) + " " + unit
	case x < 99.95:
		return Fixed(x, 1) + " " + unit
	}
	return Fixed(x, 0) + " " + unit
}

// Fixed formats a non-negative number with some digits after the point. Half of the last digit is rounded up, as
// toFixed of ECMAScript does, so that the page and the commands show the same number.
func Fixed(x float64, digits int) string {
	if odd := math.Ldexp(x, digits+1); odd == math.Trunc(odd) && math.Mod(odd, 2) == 1 { // the only halves that a float64 has
		x = math.Nextafter(x, math.Inf(1))
	}
	return strconv.FormatFloat(x, 'f', digits, 64)
}

// Counts lists counts by name: "urgent 2, wrapped 1". It returns "" without counts.
func Counts(counts map[string]int64) string {
	names := slices.Sorted(maps.Keys(counts))
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, counts[name])
	}
	return strings.Join(names, ", ")
}
