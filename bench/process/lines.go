package process

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"strings"
	"sync"
)

const (
	// keptLines is how many lines wait for a reader. If there are more, the oldest is dropped.
	keptLines = 256
	// longestLine is the size in bytes at which a line is cut.
	longestLine = 64 << 10
)

// lines is a Writer that keeps the last lines written to it for a reader.
type lines struct {
	mu      sync.Mutex
	partial []byte   // a line that has no newline yet
	kept    []string // the oldest first
	last    string   // the newest line, read or not; empty lines do not count
	panic   string   // the line with which the Go runtime begins its last words
	closed  bool
	changed chan struct{} // closed and replaced when kept or closed changes
}

func newLines() *lines { return &lines{changed: make(chan struct{})} }

// Write never fails and never waits.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(b)
	for {
		line, rest, found := bytes.Cut(b, []byte{'\n'})
		if room := longestLine - len(l.partial); len(line) > room {
			line = line[:room]
		}
		l.partial = append(l.partial, line...)
		if !found {
			return n, nil
		}
		l.add()
		b = rest
	}
}

// add ends the partial line.
func (l *lines) add() {
	line := string(l.partial)
	l.partial = l.partial[:0]
	if line != "" {
		l.last = line
	}
	if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
		l.panic = line
	}
	if len(l.kept) == keptLines {
		l.kept = append(l.kept[:0], l.kept[1:]...)
	}
	l.kept = append(l.kept, line)
	l.wake()
}

func (l *lines) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// close says that nothing more will be written.
func (l *lines) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.partial) > 0 {
		l.add()
	}
	l.closed = true
	l.wake()
}

// next returns the oldest kept line. If there is none, it waits. After the last line it returns io.EOF.
func (l *lines) next(ctx context.Context) (string, error) {
	for {
		l.mu.Lock()
		if len(l.kept) > 0 {
			line := l.kept[0]
			l.kept = append(l.kept[:0], l.kept[1:]...)
			l.mu.Unlock()
			return line, nil
		}
		closed, changed := l.closed, l.changed
		l.mu.Unlock()
		if closed {
			return "", io.EOF
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// newest returns the last line that was not empty, read or not. If the process panicked, it returns the line with
// the panic's message instead of the end of its stack.
func (l *lines) newest() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.panic, l.last)
}
