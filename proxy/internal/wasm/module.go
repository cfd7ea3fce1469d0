package wasm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/penstock/penstock/internal/feature"
)

// Engines.
const (
	Compiler    = "compiler"
	Interpreter = "interpreter"
)

// Bounds are the bounds of a module and its instances.
type Bounds struct {
	// Memory is the largest linear memory of an instance, in bytes; 0: 1 MiB. It is rounded down to pages of 64 KiB.
	Memory int64
	// Start is how long the start function and _initialize of an instance may take; 0: 5 s.
	Start time.Duration
	// Code is the largest size of a module, in bytes; 0: 32 MiB.
	Code int
	// Interpret interprets the module even if it could be compiled.
	Interpret bool
}

const (
	// DefaultMemory is the default memory limit of an instance, in bytes.
	DefaultMemory = 1 << 20
	// MaxMemory is the largest memory limit.
	MaxMemory    = 1 << 30
	defaultStart = 5 * time.Second
	defaultCode  = 32 << 20
)

func (b Bounds) filled() Bounds {
	if b.Memory <= 0 {
		b.Memory = DefaultMemory
	}
	b.Memory = min(b.Memory, MaxMemory) &^ (pageSize - 1)
	if b.Start <= 0 {
		b.Start = defaultStart
	}
	if b.Code <= 0 {
		b.Code = defaultCode
	}
	return b
}

// A HostFunction is a function that modules may import.
type HostFunction struct {
	Name            string
	Params, Results []api.ValueType
	// Call gets the parameters in stack, and puts the result in their place. The instance belongs to the caller. A panic
	// with an error ends the module's call with [ErrTrap].
	Call func(i *Instance, stack []uint64)
}

// A Host is the functions that a module may import, by the module from which they are imported. A module may also import
// WASI (wasi_snapshot_preview1), without files, sockets, arguments and environment.
type Host map[string][]HostFunction

// A Module is a compiled module. It may be used by several goroutines.
type Module struct {
	bounds   Bounds
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	engine   string
	close    sync.Once
}

// MayCompile reports whether Compile compiles modules. Otherwise they are interpreted.
func MayCompile(bounds Bounds) bool {
	return !bounds.Interpret && (runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64") && feature.ExecutableMemory() == nil
}

// shared has the code of each module in use only once, for either engine, even if several have compiled the same bytes: other listeners, and a
// configuration that is checked or planned while it is in force.
var shared = wazero.NewCompilationCache()

// compiling is full while a module is compiled: a large one takes seconds and hundreds of megabytes, so modules take turns.
var compiling = make(chan struct{}, 1)

// Compile compiles a module. The error matches [ErrInvalid] or [ErrMemory] (the module needs too much memory at its start),
// or is an [ImportError] or the cause of the context's end.
func Compile(ctx context.Context, code []byte, host Host, bounds Bounds) (_ *Module, err error) {
	bounds = bounds.filled()
	if len(code) > bounds.Code {
		return nil, fmt.Errorf("%w: it has %d bytes, more than %d", ErrInvalid, len(code), bounds.Code)
	}
	compiled := MayCompile(bounds)
	instrumented, minPages, err := instrument(code, compiled, bounds.Memory)
	if err != nil {
		return nil, err
	}
	if need := int64(minPages) * pageSize; need > bounds.Memory {
		return nil, &MemoryError{need, bounds.Memory}
	}
	m := &Module{bounds: bounds, engine: Interpreter}
	config := wazero.NewRuntimeConfigInterpreter().WithCompilationCache(shared).WithCloseOnContextDone(true)
	if compiled {
		m.engine = Compiler
		config = wazero.NewRuntimeConfigCompiler().WithCompilationCache(shared) // instrument adds the look at its deadline
		select {
		case compiling <- struct{}{}:
			defer func() { <-compiling }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	m.runtime = wazero.NewRuntimeWithConfig(ctx, config.WithDebugInfoEnabled(false))
	defer func() {
		if r := recover(); r != nil { // wazero's compiler panics if there is no memory for the code
			err = fmt.Errorf("compile: %v", r)
		}
		if err != nil {
			_ = m.Close()
		}
	}()
	m.compiled, err = m.runtime.CompileModule(ctx, instrumented)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrInvalid, Printable(err.Error(), maxText))
	}
	for _, name := range []string{startExport, "_initialize"} {
		if there, fits := m.Exports(name, nil, nil); there && !fits {
			return nil, fmt.Errorf("%w: its start function, or _initialize, has parameters or results", ErrInvalid)
		}
	}
	return m, m.link(ctx, host)
}

func (m *Module) link(ctx context.Context, host Host) error {
	if err := m.checkImports(ctx, host); err != nil {
		return err
	}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, m.runtime); err != nil {
		return err
	}
	for name, functions := range host {
		b := m.runtime.NewHostModuleBuilder(name)
		for _, f := range functions {
			call := api.GoFunc(func(ctx context.Context, stack []uint64) { f.Call(instanceOf(ctx), stack) })
			b = b.NewFunctionBuilder().WithGoFunction(call, f.Params, f.Results).Export(f.Name)
		}
		if _, err := b.Instantiate(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkImports returns an error for an import that does not exist.
func (m *Module) checkImports(ctx context.Context, host Host) error {
	wasi, err := wasi_snapshot_preview1.NewBuilder(m.runtime).Compile(ctx)
	if err != nil {
		return err
	}
	defer wasi.Close(ctx)
	for _, d := range m.compiled.ImportedFunctions() {
		module, name, _ := d.Import()
		params, results, ok := host.signature(module, name)
		if !ok && module == wasi_snapshot_preview1.ModuleName {
			if f := wasi.ExportedFunctions()[name]; f != nil {
				params, results, ok = f.ParamTypes(), f.ResultTypes(), true
			}
		}
		switch {
		case !ok:
			return &ImportError{module, name, "Penstock does not have this function"}
		case string(params) != string(d.ParamTypes()) || string(results) != string(d.ResultTypes()):
			return &ImportError{module, name, "its parameters or results differ"}
		}
	}
	return nil
}

func (h Host) signature(module, name string) (params, results []api.ValueType, ok bool) {
	for _, f := range h[module] {
		if f.Name == name {
			return f.Params, f.Results, true
		}
	}
	return nil, nil, false
}

// Engine returns [Compiler] or [Interpreter].
func (m *Module) Engine() string { return m.engine }

// Exports reports whether the module exports a function with these parameters and results.
func (m *Module) Exports(name string, params, results []api.ValueType) (there, fits bool) {
	f := m.compiled.ExportedFunctions()[name]
	if f == nil {
		return false, false
	}
	return true, string(f.ParamTypes()) == string(params) && string(f.ResultTypes()) == string(results)
}

// Close frees the module and its code. All instances must be closed, and no call may be in progress.
func (m *Module) Close() error {
	var err error
	m.close.Do(func() { // once: the cache counts the users of the code
		if m.runtime != nil {
			err = m.runtime.Close(context.Background())
		}
		if m.compiled != nil {
			err = errors.Join(err, m.compiled.Close(context.Background()))
		}
	})
	return err
}

var errNotReactor = errors.New("the module has no _initialize: build it as a reactor (-buildmode=c-shared with Go)")

func (i *Instance) begin(ctx context.Context, output io.Writer) (err error) {
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions().
		WithStdout(output).WithStderr(output).WithSysWalltime().WithSysNanotime().WithRandSource(random{})
	i.Begin(i.module.bounds.Start)
	defer func() {
		if ended := i.End(); err == nil {
			err = ended
		}
	}()
	if i.instance, err = i.module.runtime.InstantiateModule(ctx, i.module.compiled, config); err != nil {
		return i.failure(err)
	}
	i.stack = i.instance.ExportedGlobal(stackExport)
	if i.module.engine == Compiler {
		i.deadline.trapBy(i.instance.ExportedGlobal(overExport).(api.MutableGlobal))
	}
	if start := i.Function(startExport); start != nil {
		if _, err = i.Call(start); err != nil {
			return err
		}
	}
	start := i.Function("_initialize")
	if start == nil {
		if i.Function("_start") != nil {
			return errNotReactor
		}
		return nil
	}
	_, err = i.Call(start)
	return err
}
