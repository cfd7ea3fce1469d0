package main

import (
	"bytes"
	"context"
	"io"
	"sync/atomic"
)

// maxSpooled is the number of lines that are queued for a slow reader.
const maxSpooled = 4096

// An asyncWriter is a writer that never blocks: a goroutine of its own writes the lines. If
// the queue is full, further lines are dropped and counted, and the count is reported. So a
// log reader that stalls costs lines, and not connections. It is safe for concurrent use.
type asyncWriter struct {
	w       io.Writer
	report  func(dropped int64) // writes to w
	lines   chan []byte
	dropped atomic.Int64
	closed  chan struct{}
	written chan struct{} // closed when the goroutine has ended
}

func newAsyncWriter(w io.Writer, report func(dropped int64)) *asyncWriter {
	s := &asyncWriter{
		w: w, report: report, lines: make(chan []byte, maxSpooled),
		closed: make(chan struct{}), written: make(chan struct{}),
	}
	go s.run()
	return s
}

// Write takes one line. It never fails.
func (s *asyncWriter) Write(line []byte) (int, error) {
	select {
	case s.lines <- bytes.Clone(line):
	default:
		s.dropped.Add(1)
	}
	return len(line), nil
}

// close writes the queue, for as long as ctx allows. It is called once; later lines are lost.
func (s *asyncWriter) close(ctx context.Context) {
	close(s.closed)
	select {
	case <-s.written:
	case <-ctx.Done():
	}
}

func (s *asyncWriter) run() {
	defer close(s.written)
	for {
		select {
		case line := <-s.lines:
			s.pass(line)
		case <-s.closed:
			for len(s.lines) > 0 {
				s.pass(<-s.lines)
			}
			return
		}
	}
}

// pass writes a line. If that fails the line is lost, since there is no place to report it.
func (s *asyncWriter) pass(line []byte) {
	_, _ = s.w.Write(line)
	if n := s.dropped.Swap(0); n > 0 {
		s.report(n)
	}
}
