package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"sync/atomic"
)

// maxSpooled is how many lines wait for a reader that is slow.
const maxSpooled = 4096

// A spool is a writer that never blocks: a goroutine of its own passes the lines
// on. When too many wait, further ones are dropped, and it is reported how many.
// So a reader of the log that stalls costs lines, and not connections. It is safe
// for concurrent use.
type spool struct {
	w       io.Writer
	report  func(dropped int64) // writes to w
	lines   chan []byte
	waiting chan []byte // of writers that wait
	dropped atomic.Int64
	closed  chan struct{}
	written chan struct{} // closed when nothing is written any more
}

func newSpool(w io.Writer, report func(dropped int64)) *spool {
	s := &spool{
		w: w, report: report, lines: make(chan []byte, maxSpooled), waiting: make(chan []byte),
		closed: make(chan struct{}), written: make(chan struct{}),
	}
	go s.run()
	return s
}

// Write takes one line. It never fails.
func (s *spool) Write(line []byte) (int, error) {
	select {
	case s.lines <- bytes.Clone(line):
	default:
		s.dropped.Add(1)
	}
	return len(line), nil
}

// A patient writer writes to a spool, and waits for its reader: none of its lines is
// dropped, and none of the others because of them. It must not be what must not wait.
type patient struct{ *spool }

// Write takes one line. It fails once the spool is closed.
func (p patient) Write(line []byte) (int, error) {
	select {
	case p.waiting <- bytes.Clone(line):
		return len(line), nil
	case <-p.closed:
		return 0, os.ErrClosed
	}
}

// close writes what waits, for as long as ctx allows. It is called once; what
// is written later is lost.
func (s *spool) close(ctx context.Context) {
	close(s.closed)
	select {
	case <-s.written:
	case <-ctx.Done():
	}
}

func (s *spool) run() {
	defer close(s.written)
	for {
		select {
		case line := <-s.lines:
			s.pass(line)
		case line := <-s.waiting:
			s.pass(line)
		case <-s.closed:
			for len(s.lines) > 0 {
				s.pass(<-s.lines)
			}
			return
		}
	}
}

// pass writes a line. One that cannot be written is gone: there is nobody to tell.
func (s *spool) pass(line []byte) {
	_, _ = s.w.Write(line)
	if n := s.dropped.Swap(0); n > 0 {
		s.report(n)
	}
}
