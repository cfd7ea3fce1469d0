package filter

import (
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

// compiledAtOnce is the most bytes of a module that is compiled before it answers: that takes some tens of
// milliseconds.
const compiledAtOnce = 64 << 10

// firstStart is how long an instance may take to begin that is interpreted: for a runtime such as Go's that is
// longer, and the machine may have other work.
const firstStart = 30 * time.Second

// compiling is held by the filter that is compiled: the others wait, so that the loops have a CPU.
var compiling = make(chan struct{}, 1)

// load makes an engine, with an instance that has begun.
func (f *Filter) load(ctx context.Context, code []byte, bounds wasm.Bounds, spare int) (*engine, error) {
	module, err := wasm.Compile(ctx, code, host(f.stream != ""), bounds)
	if err != nil {
		return nil, err
	}
	e := &engine{module: module}
	e.pool = wasm.NewPool(f.cfg.Instances, spare, func() (*wasm.Instance, error) {
		defer runtime.KeepAlive(e) // its module is freed after that
		return f.instance(module)
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
	// Clients that came before a reload may ask after Retire, so the module is freed with the last of them.
	runtime.AddCleanup(e, func(m *wasm.Module) { _ = m.Close() }, module)
	return e, nil
}

// compile has the filter go on compiled. One that cannot be goes on interpreted.
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
			f.cfg.Log(levelWarn, fmt.Sprintf("it stays interpreted: %v", err))
		}
		return
	}
	before := f.engine.Swap(e)
	before.pool.Close()
	select {
	case <-f.retired: // perhaps before that
		e.pool.Close()
	default:
	}
}

var errRetired = errors.New("the filter is not needed any more")

// Engine is how its module runs: [wasm.Compiler] or [wasm.Interpreter].
func (f *Filter) Engine() string { return f.engine.Load().module.Engine() }
