package filter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/proxy/internal/wasm"
)

// RewriterConfig describes a [Rewriter]. Each stream has its own instance, and at most Instances streams are rewritten at a
// time; 0 means 256. Timeout is for all calls about one chunk of a stream together. OnError, Preread and Upstreams are not
// used.
type RewriterConfig struct {
	Config
	// FromServer selects the bytes from endpoints, for proxy_on_upstream_data. By default the module rewrites the
	// bytes from clients, by proxy_on_downstream_data.
	FromServer bool
	// Pass lets the bytes of a stream go on unchanged after a failure. By default the stream ends.
	Pass bool
	// Buffer limits the bytes of a stream's buffer: the bytes held back, the new bytes, and the result of rewriting.
	// 0 means 64 KiB.
	Buffer int
	// Spare is how many instances are started in advance. They count for Instances.
	Spare int
	// Workers is how many goroutines run the module; 0 means 1.
	Workers int
}

const (
	defaultBuffer  = 64 << 10
	defaultStreams = 256
	// mostChunk is how many bytes a module gets at once.
	mostChunk = 16 << 10
)

// Failures of streams, in addition to the failures about clients.
const (
	// FailedBuffer means that the buffer would have become too large.
	FailedBuffer Failure = failures + iota
	// FailedOverload means that there are too many streams. The session ends, even with [RewriterConfig.Pass].
	FailedOverload
	// FailedDenied means that the module has ended the session, which ends even with Pass.
	FailedDenied
	// FailedEncrypted means that TLS or SSH begins in the stream. The session ends, even with Pass.
	FailedEncrypted

	streamFailures
)

// Passes reports whether bytes may go on unchanged after this failure, see [RewriterConfig.Pass].
func (f Failure) Passes() bool {
	return f != FailedOverload && f != FailedDenied && f != FailedEncrypted
}

var (
	// ErrBuffer means that the stream's buffer would have become too large.
	ErrBuffer = errors.New("the module's buffer is full")
	// ErrEncrypted means that TLS or SSH begins in the stream.
	ErrEncrypted = errors.New("the bytes to be rewritten are encrypted")
	// ErrDenied means that the module has ended the stream.
	ErrDenied = errors.New("denied by the module")
)

// A Rewriter rewrites streams by a module. It is safe for concurrent use.
type Rewriter struct {
	f       *Filter // the module, its instances and its log
	cfg     RewriterConfig
	buffer  uint32 // type of the buffer in proxy-wasm
	streams crew[*Stream]
}

// NewRewriter loads a module and makes its first instance, so a module that cannot start is found here. Errors match
// the errors of package wasm.
func NewRewriter(ctx context.Context, code []byte, cfg RewriterConfig) (*Rewriter, error) {
	cfg.Buffer, cfg.Instances = cmp.Or(cfg.Buffer, defaultBuffer), cmp.Or(cfg.Instances, defaultStreams)
	cfg.Counts = cmp.Or(cfg.Counts, NewStreamLedger())
	r := &Rewriter{cfg: cfg, buffer: bufferDownstreamData}
	r.f, r.streams.run = newFilter(cfg.Config), r.run
	r.f.stream, r.f.spare = "proxy_on_downstream_data", cfg.Spare
	if cfg.FromServer {
		r.buffer, r.f.stream = bufferUpstreamData, "proxy_on_upstream_data"
	}
	if err := r.f.start(ctx, code); err != nil {
		return nil, err
	}
	return r, nil
}

// checkStream returns why a module cannot rewrite streams.
func (f *Filter) checkStream(module *wasm.Module) error {
	switch there, fits := module.Exports(f.stream, ints(3), ints(1)); {
	case !there:
		return fmt.Errorf("the module exports no %s: it cannot rewrite this direction", f.stream)
	case !fits:
		return fmt.Errorf("the module's %s has other parameters or results than in proxy-wasm", f.stream)
	}
	return checkExports(module)
}

// Engine returns how the modules of new streams run: [wasm.Compiler] or [wasm.Interpreter].
func (r *Rewriter) Engine() string { return r.f.Engine() }

// Streams returns how many streams have an instance.
func (r *Rewriter) Streams() int {
	out, _ := r.f.engine.Load().pool.Sizes()
	return out
}

// Retire closes instances that are not in use. Streams go on, and late streams still begin.
func (r *Rewriter) Retire() { r.f.Retire() }

// Close frees the Rewriter. All streams must be closed. Close waits for streams that are still ending.
func (r *Rewriter) Close() {
	r.f.Retire()
	r.streams.goroutines.Wait()
	r.f.Close()
}

// run works on streams as long as some wait. A module that cannot start takes at most a fifth of a CPU, like a
// filter.
func (r *Rewriter) run() {
	for s, ok := r.streams.take(); ok; s, ok = r.streams.take() {
		began := time.Now()
		if err := s.work(); errors.Is(err, errStart) && !errors.Is(err, wasm.ErrBusy) {
			r.f.rest(rests * time.Since(began))
		}
	}
}
