// Package display is how texts of others are shown: names of files, of DNS and of endpoints,
// what clients send, and errors that quote any of these. A terminal does what control characters
// say, a log has a line for each record, and a table one for each row.
//
// Names are held to [Check] where they come in; whatever is shown goes through [Text], or, where
// it is shown as it was formatted, through a [Writer].
package display

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxName is how many bytes the name of an endpoint or a zone has at most; a name of DNS has
// fewer.
const MaxName = 255

// Check returns an error of one line for a text that is longer than so many bytes, or has a
// character that cannot be seen, beside spaces.
func Check(text string, most int) error {
	if len(text) > most {
		return fmt.Errorf("%q… is %d bytes long: write at most %d", start(text), len(text), most)
	}
	for i, r := range text {
		if !seen(r, text[i:]) {
			return fmt.Errorf("%q has characters that cannot be seen: write others", start(text))
		}
	}
	return nil
}

// start is as much of a text as an error quotes.
func start(text string) string {
	const most = 80
	for i := range text {
		if i > most {
			return text[:i]
		}
	}
	return text
}

// seen reports whether the first character of a text can be seen, and is none that stands for
// bytes that are no text.
func seen(r rune, text string) bool {
	return unicode.IsPrint(r) && (r != utf8.RuneError || strings.HasPrefix(text, "\ufffd"))
}

// Text returns a text as one line in which every character can be seen: others are written as
// in Go, \n, \x1b, \u202e.
func Text(text string) string { return escape(text, "") }

// Excerpt returns as much of a text as fits into so many bytes, as Text would show it, and
// ends with an ellipsis if that is not all.
func Excerpt(text string, most int) string {
	shown := Text(text[:min(len(text), most)]) // each byte makes at least one
	if len(shown) <= most && len(text) <= most {
		return shown
	}
	const more = "…"
	cut := 0
	for i := range shown {
		if i > most-len(more) {
			break
		}
		cut = i
	}
	return shown[:cut] + more
}

// Lines returns a text of several lines in which every character can be seen, beside the ends
// of lines.
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

// A Writer passes on what was formatted, JSON or lines of a log, with each character that
// a terminal obeys, or that ends a line for some, written as JSON writes it, \u009b: JSON stays what it
// says. The ends of lines and tabs stay. It is not safe for concurrent use unless the one that
// it passes to is, and each Write has whole characters.
type Writer struct{ to io.Writer }

// NewWriter returns a Writer that passes on to another one.
func NewWriter(to io.Writer) Writer { return Writer{to} }

// Write implements [io.Writer]: n is of what was given.
func (w Writer) Write(p []byte) (n int, err error) {
	text := string(p)
	if !strings.ContainsFunc(text, obeyed) && utf8.Valid(p) {
		return w.to.Write(p)
	}
	var b strings.Builder
	for _, r := range text {
		if obeyed(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r) // and U+FFFD for what is no character
		}
	}
	if _, err := io.WriteString(w.to, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// obeyed reports whether a terminal may do something else with a character than to show it:
// control characters, and those that turn the direction of others or end a line.
func obeyed(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case unicode.IsControl(r), r == '\u2028', r == '\u2029', r == '\u061c', r == '\u200e', r == '\u200f':
		return true
	}
	return r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}
