package filter

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/internal/wasm"
)

const (
	// maxLine is the longest line of a module, in bytes, and linesPerSecond how many lines a filter may log.
	maxLine        = 512
	linesPerSecond = 10
)

// A logger passes on the lines of a filter, up to a rate, and counts the others. A stream may log one more line at
// its end.
type logger struct {
	counts *Ledger
	to     func(level int, line string)

	mu    sync.Mutex
	since time.Time
	lines int
}

func (l *logger) line(level int, b []byte, own bool) {
	if l.to == nil || !own && !l.may() {
		l.counts.Unlogged.Add(1)
		return
	}
	l.counts.Logged.Add(1)
	l.to(level, text(b, maxLine))
}

// may reports whether this second has room for another line.
func (l *logger) may() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.since) >= time.Second {
		l.since, l.lines = now, 0
	}
	l.lines++
	return l.lines <= linesPerSecond
}

// An output is the standard output of an instance. It is logged at level info.
type output struct {
	log   *logger
	rest  []byte
	begun bool   // the instance has started
	said  []byte // the first maxSaid bytes that the instance has written or logged before it started
}

// maxSaid limits output.said. An error has half as many bytes of it.
const maxSaid = 512

// say notes output of an instance that has not started yet.
func (o *output) say(b []byte) {
	if !o.begun {
		o.said = append(o.said, b[:min(len(b), maxSaid-len(o.said))]...)
	}
}

// because adds the output of an instance that could not start to the error. It stops at an empty line: a Go panic
// prints the stacks of its goroutines after one.
func (o *output) because(err error) error {
	first, _, _ := bytes.Cut(bytes.TrimSpace(o.said), []byte("\n\n"))
	if len(first) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s", err, wasm.Printable(string(bytes.ReplaceAll(first, []byte{'\n'}, []byte("; "))), maxSaid/2))
}

func (o *output) Write(b []byte) (int, error) {
	o.say(b)
	for rest := b; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		rest = after
		if room := maxLine + 1 - len(o.rest); room > 0 {
			o.rest = append(o.rest, line[:min(len(line), room)]...)
		}
		if ended {
			if len(o.rest) > 0 {
				o.log.line(2, o.rest, false)
			}
			o.rest = o.rest[:0]
		}
	}
	return len(b), nil
}
