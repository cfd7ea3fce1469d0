package filter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/wasm"
)

// RewriterConfig describes a [Rewriter].
type RewriterConfig struct {
	// Name is in log lines, and the module's own plugin_name.
	Name string
	// Config is the text that the module gets as the plugin's configuration.
	Config string
	Bounds wasm.Bounds
	// Soon is that of [Config].
	Soon bool
	// FromServer has it rewrite the bytes of endpoints, by proxy_on_upstream_data; otherwise it rewrites those of clients, by
	// proxy_on_downstream_data.
	FromServer bool
	// Timeout is how long the calls about one chunk of a stream may take together.
	Timeout time.Duration
	// Pass has the bytes of a stream go on as they are after a failure, in place of its end.
	Pass bool
	// Buffer is how many bytes a stream's buffer may have: those that are held back, those that come, and those that they become.
	// 0: 64 KiB.
	Buffer int
	// Streams is how many there may be at a time, each with an instance of its own; 0: 256.
	Streams int
	// Spare is how many instances have begun and wait for streams, of those.
	Spare int
	// Workers is how many goroutines run the module; 0: 1.
	Workers int
	// Counts has the counts of the Rewriter. Required.
	Counts *StreamCounts
	// Log is that of [Config].
	Log func(level int, line string)
}

const (
	defaultBuffer  = 64 << 10
	defaultStreams = 256
	// mostChunk is the most bytes that come to a module at once.
	mostChunk = 16 << 10
)

// Failures of streams, beside those of clients.
const (
	// FailedBuffer: the buffer was to become larger than it may be.
	FailedBuffer Failure = failures + iota
	// FailedOverload: there are as many streams as there may be. The session ends, whatever [RewriterConfig.Pass] is.
	FailedOverload
	// FailedDenied: the module has ended the session, which ends whatever Pass is.
	FailedDenied
	// FailedEncrypted: TLS or SSH begins in the stream. The session ends, whatever Pass is.
	FailedEncrypted

	streamFailures
)

// Passes reports whether bytes of a stream that has failed for this reason may go on as they are, see [RewriterConfig.Pass].
func (f Failure) Passes() bool {
	return f != FailedOverload && f != FailedDenied && f != FailedEncrypted
}

var (
	// ErrBuffer is the error of a stream whose buffer was to become larger than it may be.
	ErrBuffer = errors.New("the module's buffer is full")
	// ErrEncrypted is the error of a stream in which TLS or SSH begins.
	ErrEncrypted = errors.New("the bytes to be rewritten are encrypted")
	// ErrDenied is the error of a stream that the module has ended.
	ErrDenied = errors.New("denied by the module")
)

// StreamCounts are the counts of the streams of one or more Rewriters. They are safe for concurrent use.
type StreamCounts struct {
	ledger        Ledger // of log lines
	calls, nanos  atomic.Int64
	in, out       atomic.Int64
	reset, passed [streamFailures]atomic.Int64
}

// StreamTotals are the values of [StreamCounts].
type StreamTotals struct {
	// Calls is how often modules were called about a chunk, and Time the sum of the times that this took.
	Calls int64
	Time  time.Duration
	// In and Out are the bytes that have come, and those that have gone on.
	In, Out int64
	// Reset and Passed are the streams that have failed, by [Failure]: those that have ended, and those that have gone on
	// as they are.
	Reset, Passed [streamFailures]int64
	// Logged is how many lines were logged, Unlogged how many there were beside them.
	Logged, Unlogged int64
}

// Totals returns the values now.
func (c *StreamCounts) Totals() (t StreamTotals) {
	t.Calls, t.Time = c.calls.Load(), time.Duration(c.nanos.Load())
	t.In, t.Out = c.in.Load(), c.out.Load()
	for i := range t.Reset {
		t.Reset[i], t.Passed[i] = c.reset[i].Load(), c.passed[i].Load()
	}
	t.Logged, t.Unlogged = c.ledger.logged.Load(), c.ledger.unlogged.Load()
	return t
}

// A Rewriter has a module rewrite streams. It may be used by several goroutines.
type Rewriter struct {
	f       *Filter // the module, its instances and its log
	cfg     RewriterConfig
	buffer  uint32 // type of proxy-wasm
	mu      sync.Mutex
	first   *Stream // of those that wait for a goroutine
	last    *Stream
	running int // goroutines
	streams sync.WaitGroup
}

// NewRewriter loads a module, and makes its first instance, so that one that cannot begin is found. An error matches
// those of package wasm.
func NewRewriter(ctx context.Context, code []byte, cfg RewriterConfig) (*Rewriter, error) {
	if cfg.Buffer <= 0 {
		cfg.Buffer = defaultBuffer
	}
	if cfg.Streams <= 0 {
		cfg.Streams = defaultStreams
	}
	r := &Rewriter{cfg: cfg, buffer: bufferDownstreamData}
	r.f = newFilter(Config{
		Name: cfg.Name, Config: cfg.Config, Bounds: cfg.Bounds, Soon: cfg.Soon, Timeout: cfg.Timeout,
		Instances: cfg.Streams, Counts: &cfg.Counts.ledger, Log: cfg.Log,
	})
	r.f.stream, r.f.spare = "proxy_on_downstream_data", cfg.Spare
	if cfg.FromServer {
		r.buffer, r.f.stream = bufferUpstreamData, "proxy_on_upstream_data"
	}
	if err := r.f.start(ctx, code); err != nil {
		return nil, err
	}
	return r, nil
}

// checkStream returns why a module does not rewrite streams.
func (f *Filter) checkStream(module *wasm.Module) error {
	switch there, fits := module.Exports(f.stream, ints(3), ints(1)); {
	case !there:
		return fmt.Errorf("the module exports no %s: it rewrites nothing of that direction", f.stream)
	case !fits:
		return fmt.Errorf("the module's %s has other parameters or results than proxy-wasm has", f.stream)
	}
	return checkExports(module)
}

// Engine is how new streams' modules run: [wasm.Compiler] or [wasm.Interpreter].
func (r *Rewriter) Engine() string { return r.f.Engine() }

// Streams is how many there are that have an instance.
func (r *Rewriter) Streams() int {
	out, _ := r.f.engine.Load().pool.Sizes()
	return out
}

// Retire closes instances that are not in use. Streams that there are go on, and late ones still begin.
func (r *Rewriter) Retire() { r.f.Retire() }

// Close frees the Rewriter, of which no stream may be left, but for those whose end is under way: it waits for that.
func (r *Rewriter) Close() {
	r.f.Retire()
	r.streams.Wait()
	r.f.Close()
}

// queue has a stream worked on.
func (r *Rewriter) queue(s *Stream) {
	r.mu.Lock()
	if r.last != nil {
		r.last.next = s
	} else {
		r.first = s
	}
	r.last = s
	start := r.running < max(r.cfg.Workers, 1)
	if start {
		r.running++
	}
	r.mu.Unlock()
	if start {
		r.streams.Go(r.run)
	}
}

// take takes the first of those that wait; nil: there is none, and the goroutine has to end.
func (r *Rewriter) take() *Stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.first
	if s == nil {
		r.running--
		return nil
	}
	if r.first = s.next; r.first == nil {
		r.last = nil
	}
	s.next = nil
	return s
}

// run works on streams for as long as some wait. A module that cannot begin has a fifth of a CPU, as a filter has.
func (r *Rewriter) run() {
	for s := r.take(); s != nil; s = r.take() {
		began := time.Now()
		if err := s.work(); errors.Is(err, errStart) && !errors.Is(err, wasm.ErrBusy) {
			r.f.rest(rests * time.Since(began))
		}
	}
}
