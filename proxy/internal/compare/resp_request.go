package compare

import (
	"bytes"
)

const (
	wordBytes   = 32 // longest name of a command that counts by itself
	numberBytes = 24 // longest number with its line's end
	inlineBytes = 64 << 10
	maxArgs     = 1 << 20
	maxBulk     = 1 << 40
)

// respRequests reads commands: arrays of bulk strings, and inline ones.
type respRequests struct {
	s      *Session
	line   number
	inline bool  // an inline command
	length int   // bytes of it
	args   int64 // arguments of the command that have not ended
	arg    int   // index of the one that is next, or is read
	rest   int64 // bytes of it, and of its line's end
	words  [2]word
}

// A word is the begin of an argument.
type word struct {
	b [wordBytes]byte
	n int // more than b has if it is too long
}

// add adds bytes, in upper case.
func (w *word) add(b []byte) {
	for _, c := range b {
		if w.n == len(w.b) {
			w.n++
		}
		if w.n > len(w.b) {
			return
		}
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		w.b[w.n] = c
		w.n++
	}
}

// text returns the word; it is empty if it is too long.
func (w *word) text() []byte {
	if w.n > len(w.b) {
		return nil
	}
	return w.b[:w.n]
}

// A number is a line with a kind and a number, such as $5.
type number struct {
	b [numberBytes]byte
	n int
}

// add adds the bytes up to the line's end, and returns how many they were, and whether it was
// there.
func (l *number) add(b []byte) (n int, done bool, err error) {
	n = bytes.IndexByte(b, '\n') + 1
	done = n > 0
	if !done {
		n = len(b)
	}
	if l.n+n > len(l.b) {
		return 0, false, unexpected("a line with a length has more than %d bytes", len(l.b))
	}
	l.n += copy(l.b[l.n:], b[:n])
	return n, done, nil
}

// value returns the number, and begins the next line.
func (l *number) value() (int64, error) {
	text, ok := bytes.CutSuffix(l.b[:l.n], []byte("\r\n"))
	l.n = 0
	if !ok || len(text) < 2 {
		return 0, errNumber
	}
	digits, negative := bytes.CutPrefix(text[1:], []byte("-"))
	var v int64
	for _, c := range digits {
		if c < '0' || c > '9' || v > maxBulk {
			return 0, errNumber
		}
		v = 10*v + int64(c-'0')
	}
	if len(digits) == 0 {
		return 0, errNumber
	}
	if negative {
		v = -v
	}
	return v, nil
}

var errNumber = unexpected("a line has no number, or no end")

func (p *respRequests) parse(b []byte) {
	for len(b) > 0 && p.s.requests != nil && p.s.reason == Going {
		switch {
		case p.inline:
			b = p.parseInline(b)
		case p.rest > 0:
			b = p.body(b)
		case p.line.n == 0 && p.args == 0 && b[0] != '*':
			p.inline = true
		default:
			n, done, err := p.line.add(b)
			if done {
				err = p.number(p.line.b[0])
			}
			if err != nil {
				p.s.forget()
				return
			}
			b = b[n:]
		}
	}
}

// number is the end of a line with a number of arguments, or of bytes.
func (p *respRequests) number(kind byte) error {
	n, err := p.line.value()
	switch {
	case err != nil:
		return err
	case kind == '*' && p.args == 0 && n <= maxArgs:
		p.begin()
		p.args = max(n, 0)
	case kind == '$' && p.args > 0 && n >= 0 && n <= maxBulk:
		p.rest = n + 2
	default:
		return unexpected("a command has %q", kind)
	}
	return nil
}

func (p *respRequests) begin() { p.arg, p.words[0].n, p.words[1].n = 0, 0, 0 }

// body reads bytes of an argument.
func (p *respRequests) body(b []byte) []byte {
	n := int(min(int64(len(b)), p.rest))
	if text := min(int64(n), p.rest-2); p.arg < len(p.words) && text > 0 {
		p.words[p.arg].add(b[:text])
	}
	p.skipBody(n)
	return b[n:]
}

func (p *respRequests) skipBody(n int) {
	if p.rest -= int64(n); p.rest > 0 {
		return
	}
	p.arg++
	if p.args--; p.args == 0 {
		p.end()
	}
}

// skip skips bytes of an argument that is in no name.
func (p *respRequests) skip(n int) bool {
	if p.inline || p.arg < len(p.words) || int64(n) > p.rest {
		return false
	}
	p.skipBody(n)
	return true
}

// parseInline reads an inline command: words up to the end of the line.
func (p *respRequests) parseInline(b []byte) []byte {
	for i, c := range b {
		if p.length == 0 {
			p.begin()
			p.arg = -1
		}
		if p.length++; p.length > inlineBytes {
			p.s.forget()
			return nil
		}
		switch space := c == ' ' || c == '\t' || c == '\r' || c == '\n'; {
		case !space && p.rest == 0: // a word begins
			p.arg++
			p.rest = 1
			fallthrough
		case !space:
			if p.arg < len(p.words) {
				p.words[p.arg].add(b[i : i+1])
			}
		default:
			p.rest = 0
		}
		if c == '\n' {
			p.inline, p.length = false, 0
			if p.arg++; p.arg > 0 {
				p.end()
			}
			return b[i+1:]
		}
	}
	return nil
}

// end is the end of a command with arg words.
func (p *respRequests) end() {
	command := p.words[0].text()
	r := request{name: other}
	if isWord(command) {
		r.name = p.s.command(command)
	}
	switch string(command) {
	case "SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE":
		p.s.subscribed = true
		r.kind, r.n = subscribe, uint16(min(max(p.arg-1, 1), 1<<16-1))
	case "MONITOR":
		r.kind = monitor
	case "SYNC", "PSYNC":
		r.kind = opaque
	case "CLIENT":
		if string(p.words[1].text()) == "REPLY" {
			p.s.forget() // commands without an answer may follow
			return
		}
	}
	p.s.ask(r)
}

// isWord reports whether bytes are a name that a report may have.
func isWord(b []byte) bool {
	for _, c := range b {
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return len(b) > 0
}
