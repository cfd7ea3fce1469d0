package filter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/penstock/penstock/proxy/internal/wasm"
)

// An engine is a filter's module, compiled or interpreted, with its instances.
type engine struct {
	module *wasm.Module
	pool   *wasm.Pool
}

// compiledAtOnce is the size up to which a module is compiled before it first answers. That takes some tens of
// milliseconds.
const compiledAtOnce = 64 << 10

// usualStart is how long an instance may take to begin, unless [wasm.Bounds] say otherwise. firstStart is the same for the
// first instance, if it is interpreted: a runtime such as Go's takes longer the first time, and the machine may have other work.
const (
	usualStart = 5 * time.Second
	firstStart = 30 * time.Second
)

// compiling is held by the filter that compiles. Other filters wait, so that the loops have a CPU.
var compiling = make(chan struct{}, 1)

func (f *Filter) load(ctx context.Context, code []byte, bounds wasm.Bounds, spare int) (*engine, error) {
	bounds.Start = cmp.Or(bounds.Start, usualStart)
	module, err := wasm.Compile(ctx, code, host(f.stream != ""), bounds)
	if err != nil {
		return nil, err
	}
	e := &engine{module: module}
	e.pool = wasm.NewPool(f.cfg.Instances, spare, func() (*wasm.Instance, error) {
		defer runtime.KeepAlive(e) // until here the module is not freed
		return f.instance(module, bounds.Start)
	})
	if err = f.check(module); err == nil {
		var i *wasm.Instance
		if i, err = e.pool.Get(); err == nil {
			e.pool.Put(i)
		}
	}
	if err != nil {
		e.pool.Close()
		e.pool.Wait()
		_ = module.Close()
		return nil, err
	}
	// Clients that came before a reload may ask after Retire, so the last user of the engine frees the module.
	runtime.AddCleanup(e, func(m *wasm.Module) { _ = m.Close() }, module)
	return e, nil
}

// compile replaces the interpreted module by a compiled one. If it cannot be compiled, it stays interpreted.
func (f *Filter) compile(code []byte) {
	select {
	case compiling <- struct{}{}:
		defer func() { <-compiling }()
	case <-f.retired:
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-f.retired:
			cancel(errRetired)
		case <-over:
		}
	}()
	e, err := f.load(ctx, code, f.cfg.Bounds, f.spare)
	if err != nil {
		if f.cfg.Log != nil && !errors.Is(err, errRetired) {
			f.cfg.Log(levelWarn, fmt.Sprintf("the module stays interpreted: %v", err))
		}
		return
	}
	before := f.engine.Swap(e)
	before.pool.Close()
	select {
	case <-f.retired: // Retire may have been called before the swap
		e.pool.Close()
	default:
	}
}

var errRetired = errors.New("the filter is no longer needed")

// Engine returns how the module runs: [wasm.Compiler] or [wasm.Interpreter].
func (f *Filter) Engine() string { return f.engine.Load().module.Engine() }
