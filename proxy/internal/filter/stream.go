package filter

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/internal/wasm"
)

// A Stream is one direction of a session that a [Rewriter] rewrites. It has its own instance, which is made for it and
// closed after it. It implements driver.Transform. The session's loop and the goroutine that works on the stream take turns
// with its buffer.
type Stream struct {
	r     *Rewriter
	of    *Connection
	wake  func()
	hello hello // used by the loop

	mu      sync.Mutex
	chunk   *[]byte // the buffer from chunks in which data began, or nil
	data    []byte  // data[at:ready] goes on, the rest is held back; used by the goroutine while it works
	at      int
	ready   int
	size    int // length of data[at:]
	working bool
	ended   bool // no more bytes come
	closed  bool
	passing bool // the module has failed, and the bytes go on unchanged
	err     error

	// Used by the goroutine:
	engine   *engine // of the instance; kept so that it is not freed before the instance
	wasm     *wasm.Instance
	original []byte // the buffer before the module changed it; nil: unchanged
	changed  bool
	hold     int // bytes that the module wants to hold back
	calling  bool
}

// chunks are buffers of mostChunk bytes.
var chunks = sync.Pool{New: func() any { b := make([]byte, 0, mostChunk); return &b }}

// NewStream returns a stream for a direction of a new session. Its instance is made when the first bytes come.
func (r *Rewriter) NewStream(of *Connection) *Stream { return &Stream{r: r, of: of} }

// Begin implements driver.Transform.
func (s *Stream) Begin(wake func()) { s.wake = wake }

// Most implements driver.Transform. There is always room for a byte: a full buffer is a failure.
func (s *Stream) Most() int { return min(mostChunk, s.r.cfg.Buffer-s.size) }

// Held implements driver.Transform.
func (s *Stream) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// Put implements driver.Transform.
func (s *Stream) Put(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(b) > 0 {
		s.r.cfg.Counts.In.Add(int64(len(b)))
		if s.data == nil {
			s.chunk = chunks.Get().(*[]byte)
			s.data = (*s.chunk)[:0]
		}
		s.data = append(s.data, b...)
		s.size = len(s.data)
	}
	switch {
	case s.err != nil:
	case s.hello.begins(b):
		s.fail(ErrEncrypted)
	case s.passing:
		s.ready = len(s.data)
	default:
		s.start()
	}
}

// End implements driver.Transform.
func (s *Stream) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.err == nil && !s.passing {
		s.start()
	}
}

// start lets a goroutine work on the stream.
func (s *Stream) start() {
	s.working = true
	s.r.streams.add(s, math.MaxInt, s.r.cfg.Workers)
}

// Take implements driver.Transform.
func (s *Stream) Take(b []byte) (n int, busy bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.working || s.err != nil {
		return 0, s.working, s.err
	}
	n = copy(b, s.data[s.at:s.ready])
	s.r.cfg.Counts.Out.Add(int64(n))
	s.at += n
	s.size -= n
	if s.at == s.ready {
		s.data = s.data[:copy(s.data, s.data[s.ready:])]
		s.at, s.ready = 0, 0
		if len(s.data) == 0 {
			s.freeData()
		}
	}
	return n, false, nil
}

func (s *Stream) freeData() {
	if s.chunk != nil {
		chunks.Put(s.chunk)
	}
	s.data, s.chunk, s.at, s.ready = nil, nil, 0, 0
}

// Close implements driver.Transform. The goroutine closes the instance.
func (s *Stream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	switch {
	case s.working:
	case s.wasm != nil:
		s.start()
	default:
		s.freeData()
	}
}

// work calls the module, on a goroutine of the Rewriter, and returns why the call failed.
func (s *Stream) work() error {
	s.mu.Lock()
	closed, ended := s.closed, s.ended
	s.mu.Unlock()
	var err error
	if !closed {
		began := time.Now()
		if err = s.call(ended); err != nil && s.changed {
			s.data = s.original
		}
		s.original, s.changed = nil, false
		s.r.cfg.Counts.took(time.Since(began))
	}
	s.mu.Lock()
	s.settle(err)
	closed = s.closed
	if closed {
		s.freeData()
	}
	s.mu.Unlock()
	if closed {
		s.leave()
		return err
	}
	s.wake()
	return err
}

// settle notes the result of a call.
func (s *Stream) settle(err error) {
	if err != nil {
		s.drop()
	}
	switch {
	case err != nil && !s.closed && s.fail(err):
		s.ready = len(s.data)
	case err == nil:
		s.ready = len(s.data) - s.hold
	}
	s.working, s.size = false, len(s.data)
}

// fail counts a failure, and reports whether the bytes go on unchanged.
func (s *Stream) fail(err error) (passes bool) {
	why := streamFailureOf(err)
	if s.r.cfg.Pass && why.Passes() {
		s.r.cfg.Counts.Passed.Add(int(why))
		s.passing = true
		return true
	}
	s.r.cfg.Counts.Failures.Add(int(why))
	s.err = fmt.Errorf("module %s: %w", s.r.cfg.Name, err)
	return false
}

func streamFailureOf(err error) Failure {
	for _, c := range []struct {
		err error
		f   Failure
	}{
		{wasm.ErrBusy, FailedOverload},
		{ErrEncrypted, FailedEncrypted},
		{ErrDenied, FailedDenied},
		{ErrBuffer, FailedBuffer},
	} {
		if errors.Is(err, c.err) {
			return c.f
		}
	}
	return failureOf(err)
}

// streamContext is the number of the stream's context. An instance has only one.
const streamContext = root + 1

func (s *Stream) call(ended bool) error {
	fresh := s.wasm == nil
	if fresh {
		e := s.r.f.engine.Load()
		i, err := e.pool.Get()
		if err != nil {
			return fmt.Errorf("%w: %w", errStart, err)
		}
		s.engine, s.wasm = e, i
	}
	of := s.wasm.State.(*instance)
	of.stream, of.of, of.answer, of.chosen, of.err = s, s.of, Answer{}, false, nil
	s.hold = 0
	s.wasm.Begin(s.r.cfg.Timeout)
	err := s.ask(of, fresh, ended)
	if late := s.wasm.End(); err == nil {
		err = late
	}
	if err == nil {
		err = of.err
	}
	if of.chosen { // nothing that follows changes a denial
		err = ErrDenied
		if of.answer.Reason != "" {
			err = fmt.Errorf("%w: %s", ErrDenied, of.answer.Reason)
		}
	}
	of.of = nil
	return err
}

func (s *Stream) ask(of *instance, fresh, ended bool) error {
	if fresh {
		if _, err := of.call(of.create, streamContext, root); err != nil {
			return err
		}
		action, err := of.call(of.connection, streamContext)
		if err != nil {
			return err
		}
		if uint32(action) != actionContinue {
			return fmt.Errorf("%w: it pauses a connection that has already begun", ErrAnswer)
		}
	}
	end := uint64(0)
	if ended {
		end = 1
	}
	s.calling = true
	action, err := of.call(of.data, streamContext, uint64(len(s.data)), end)
	s.calling = false
	if err == nil {
		err = of.judge(action)
	}
	if err != nil {
		return err
	}
	if action == actionPause {
		s.hold = len(s.data)
	}
	switch s.hold = min(s.hold, len(s.data)); {
	case ended && (s.hold > 0 || action == actionPause):
		return fmt.Errorf("%w: it waits for more bytes or holds bytes back, but there will be no more", ErrAnswer)
	case s.hold >= s.r.cfg.Buffer:
		return fmt.Errorf("%w: it holds %d bytes back", ErrBuffer, s.hold)
	}
	return nil
}

func (s *Stream) drop() {
	if s.wasm != nil {
		s.wasm.Close()
		s.engine.pool.Put(s.wasm)
		s.wasm, s.engine = nil, nil
	}
}

// leave ends the context of a finished stream, and closes the instance.
func (s *Stream) leave() {
	if s.wasm == nil {
		return
	}
	of := s.wasm.State.(*instance)
	of.of, of.last = s.of, true
	s.wasm.Begin(s.r.cfg.Timeout)
	_ = of.endContext(streamContext) // nothing depends on the result
	_ = s.wasm.End()
	s.drop()
}

// buffer returns the bytes that the module may see, nil if it may see none now.
func (s *Stream) buffer() []byte {
	if !s.calling {
		return nil
	}
	if s.data == nil {
		return []byte{}
	}
	return s.data
}

// hostSetBuffer is proxy_set_buffer_bytes(type, start, size, data, size): it replaces bytes of the buffer.
func (s *instance) hostSetBuffer(p []uint64) uint32 {
	of := s.stream
	if of == nil || !of.calling || uint32(p[0]) != of.r.buffer {
		return statusNotFound
	}
	by, ok := s.wasm.Bytes(uint32(p[3]), uint32(p[4]))
	if !ok {
		return statusInvalidMemoryAccess
	}
	start := min(uint64(uint32(p[1])), uint64(len(of.data)))
	end := min(start+uint64(uint32(p[2])), uint64(len(of.data)))
	if uint64(len(of.data))-(end-start)+uint64(len(by)) > uint64(of.r.cfg.Buffer) {
		s.wrong(fmt.Errorf("%w: it would have %d bytes", ErrBuffer, len(of.data)-int(end-start)+len(by)))
		return statusBadArgument
	}
	of.replace(int(start), int(end), by)
	return statusOK
}

// replace replaces data[start:end] by other bytes. With Pass it keeps the original bytes, which go on if the
// module fails.
func (s *Stream) replace(start, end int, by []byte) {
	if !s.changed && s.r.cfg.Pass {
		s.original = bytes.Clone(s.data)
	}
	s.changed = s.r.cfg.Pass
	tail := len(s.data) - end
	size := start + len(by) + tail
	if size > cap(s.data) {
		data := make([]byte, size, max(size, min(2*cap(s.data), s.r.cfg.Buffer)))
		copy(data, s.data[:start])
		copy(data[start+len(by):], s.data[end:])
		s.data = data
	} else {
		data := s.data[:size]
		copy(data[start+len(by):], s.data[end:])
		s.data = data
	}
	copy(s.data[start:], by)
}

// setStream is set for a module that rewrites streams. It may set hold and deny.
func (s *instance) setStream(name string, value []byte) uint32 {
	switch name {
	case "hold":
		n, err := strconv.ParseUint(string(value), 10, 31)
		if err != nil || !s.stream.calling {
			return statusBadArgument
		}
		s.stream.hold = int(n)
	case "deny":
		s.choose(Answer{Verdict: Deny, Reason: text(value, MaxReason)})
	default:
		s.wrong(fmt.Errorf("%w: penstock.%s cannot be set", ErrAnswer, text([]byte(name), MaxReason)))
		return statusNotFound
	}
	return statusOK
}
