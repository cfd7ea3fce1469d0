package filter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/penstock/penstock/proxy/internal/wasm"
)

// Config describes a [Filter].
type Config struct {
	// Name is used in log lines, and is the module's plugin_name.
	Name string
	// Config is the text that the module gets as its plugin configuration.
	Config string
	Bounds wasm.Bounds
	// Soon starts a large module in the interpreter, and compiles it in the background. So the filter is ready in
	// a tenth of the time. The compiled module has new instances.
	Soon bool
	// Timeout is how long all calls about one client may take together.
	Timeout time.Duration
	// OnError is the verdict if the filter has no answer about a client: [Allow] or [Deny].
	OnError Verdict
	// Preread is how many of a client's first bytes the filter may see. With 0 it sees none, and clients do not wait
	// for them.
	Preread int
	// Instances is the maximum number of instances; 0 means 1.
	Instances int
	// Upstreams are the names that an answer of [Route] may use.
	Upstreams []string
	// Counts receives the counts. It comes from [NewLedger] or [NewStreamLedger]; nil: the filter makes its own.
	Counts *Ledger
	// Log is called with the filter's log lines, which are limited in number and size, by goroutines of the filter.
	// It may be nil. level is the level of proxy_log: 0 trace, 1 debug, 2 info, 3 warning, 4 error, 5 critical.
	Log func(level int, line string)
}

// MaxPreread is the largest [Config.Preread].
const MaxPreread = 16 << 10

// A Filter is safe for concurrent use.
type Filter struct {
	cfg    Config
	engine atomic.Pointer[engine] // the present engine
	Counts *Ledger                // from [Config], or a new one
	log    logger
	data   bool   // the module looks at first bytes
	stream string // the function that rewrites a stream, for a [Rewriter]; "" if the module is asked about clients
	spare  int    // instances that are kept ready for streams

	clients crew[*Call]
	retire  sync.Once
	retired chan struct{} // closed by Retire: no goroutine rests any more
}

// Limits of the waiting clients: their number, and the bytes that they hold.
const (
	maxWaiting      = 8192
	maxWaitingBytes = 16 << 20
)

// mayWait returns how many clients may wait.
func (f *Filter) mayWait() int { return min(maxWaiting, maxWaitingBytes/max(f.cfg.Preread, 1)) }

// New loads a filter and makes its first instance, so a module that cannot start is found here. Errors match the
// errors of package wasm.
func New(ctx context.Context, code []byte, cfg Config) (*Filter, error) {
	cfg.Counts = cmp.Or(cfg.Counts, NewLedger())
	f := newFilter(cfg)
	if err := f.start(ctx, code); err != nil {
		return nil, err
	}
	return f, nil
}

func newFilter(cfg Config) *Filter {
	f := &Filter{cfg: cfg, Counts: cfg.Counts, retired: make(chan struct{})}
	f.log.counts, f.log.to, f.clients.run = cfg.Counts, cfg.Log, f.run
	return f
}

func (f *Filter) start(ctx context.Context, code []byte) error {
	cfg := &f.cfg
	later := cfg.Soon && len(code) > compiledAtOnce && wasm.MayCompile(cfg.Bounds)
	bounds, spare := cfg.Bounds, f.spare
	if later {
		bounds.Interpret, bounds.Start, spare = true, max(bounds.Start, firstStart), 0
	}
	e, err := f.load(ctx, code, bounds, spare)
	if err != nil {
		return err
	}
	f.engine.Store(e)
	f.data, _ = e.module.Exports("proxy_on_downstream_data", nil, nil)
	if later {
		f.clients.goroutines.Go(func() { f.compile(code) })
	}
	return nil
}

const version = "proxy_abi_version_0_2_"

// exports are the functions that a filter calls if the module has them.
var exports = map[string]struct{ params, results int }{
	"proxy_on_vm_start": {2, 1}, "proxy_on_configure": {2, 1}, "proxy_on_context_create": {2, 0},
	"proxy_on_new_connection": {1, 1}, "proxy_on_downstream_data": {3, 1},
	"proxy_on_done": {1, 1}, "proxy_on_log": {1, 0}, "proxy_on_delete": {1, 0}, "proxy_on_memory_allocate": {1, 1}, "malloc": {1, 1},
}

func ints(n int) []api.ValueType {
	list := make([]api.ValueType, n)
	for i := range list {
		list[i] = api.ValueTypeI32
	}
	return list
}

// check returns why a module cannot be a filter.
func (f *Filter) check(module *wasm.Module) error {
	there := func(name string) bool { ok, _ := module.Exports(name, nil, nil); return ok }
	if !there(version+"1") && !there(version+"0") {
		return fmt.Errorf("the module exports no %s1: it is not a proxy-wasm module", version)
	}
	if f.stream != "" {
		return f.checkStream(module)
	}
	if !there("proxy_on_new_connection") && !there("proxy_on_downstream_data") {
		return errors.New("the module exports neither proxy_on_new_connection nor proxy_on_downstream_data, so it cannot decide")
	}
	if err := checkExports(module); err != nil {
		return err
	}
	if there("proxy_on_downstream_data") && !there("proxy_on_new_connection") && f.cfg.Preread == 0 {
		return ErrPreread
	}
	return nil
}

func checkExports(module *wasm.Module) error {
	for name, of := range exports {
		if ok, fits := module.Exports(name, ints(of.params), ints(of.results)); ok && !fits {
			return fmt.Errorf("the module's %s has other parameters or results than in proxy-wasm", name)
		}
	}
	return nil
}

// Name returns the filter's name.
func (f *Filter) Name() string { return f.cfg.Name }

// OnError returns the verdict if the filter has no answer about a client: [Allow] or [Deny].
func (f *Filter) OnError() Verdict { return f.cfg.OnError }

// Preread returns how many first bytes the filter may see, 0 if it does not look at them.
func (f *Filter) Preread() int {
	if !f.data {
		return 0
	}
	return f.cfg.Preread
}

// Retire closes the instances once their calls are over. Late clients still get an answer. Goroutines no longer rest
// after a failure: late clients are few, and wait only a limited time.
func (f *Filter) Retire() {
	f.retire.Do(func() { close(f.retired) })
	f.engine.Load().pool.Close()
}

// Close frees the filter after the calls in progress. Ask must not be called any more.
func (f *Filter) Close() {
	f.Retire()
	f.clients.goroutines.Wait()
	e := f.engine.Load()
	e.pool.Close()
	e.pool.Wait()
	_ = e.module.Close()
}

// A Call is a question about one client. It is used once.
type Call struct {
	// Of is the client. Its slices belong to the filter until there is an answer.
	Of Connection

	answer   Answer
	done     func()
	over     atomic.Bool // there is an answer
	canceled atomic.Bool
}

// Answer returns the answer, or false if there is none yet.
func (c *Call) Answer() (Answer, bool) {
	if !c.over.Load() {
		return Answer{}, false
	}
	return c.answer, true
}

// Cancel says that nobody waits for the answer any more.
func (c *Call) Cancel() { c.canceled.Store(true) }

// Overloaded counts a client that has waited for too long.
func (f *Filter) Overloaded() { f.Counts.Verdicts.Add(int(Overload)) }

// Ask asks about a client. Another goroutine calls done when there is an answer; done must not wait. If too many
// clients wait already, Ask returns false, and done is not called.
func (f *Filter) Ask(c *Call, done func()) bool {
	c.done = done
	if !f.clients.add(c, f.mayWait(), f.cfg.Instances) {
		f.Overloaded()
		return false
	}
	return true
}

// rests is how long a goroutine rests after a failed call, as a multiple of the call's time.
const rests = 4

// run answers clients as long as some wait.
func (f *Filter) run() {
	for c, ok := f.clients.take(); ok; c, ok = f.clients.take() {
		if c.canceled.Load() {
			continue
		}
		began := time.Now()
		err := f.answer(c)
		if failed := time.Since(began); err != nil {
			f.rest(rests * failed)
		}
	}
}

// rest waits for a time, or until the filter is retired.
func (f *Filter) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.retired:
	}
}

// answer asks the module about a client, and returns why there is no answer.
func (f *Filter) answer(c *Call) error {
	began := time.Now()
	e := f.engine.Load()
	i, err := e.pool.Get()
	if err != nil {
		err = fmt.Errorf("%w: %w", errStart, err)
	} else {
		of := i.State.(*instance)
		err = of.decide(&c.Of)
		c.answer = of.answer
		of.answer = Answer{}
		e.pool.Put(i)
	}
	runtime.KeepAlive(e) // after this the module may be freed
	n := f.Counts
	n.note(time.Since(began))
	if err != nil {
		n.Failures.Add(int(failureOf(err)))
		if c.answer.Verdict != Deny { // nothing that follows changes a denial
			c.answer = Answer{Verdict: f.cfg.OnError, Tags: c.answer.Tags}
		}
		c.answer.Err = fmt.Errorf("filter %s: %w", f.cfg.Name, err)
	}
	n.Verdicts.Add(int(c.answer.Verdict))
	if c.answer.Tags != "" {
		n.Tagged.Add(1)
	}
	c.over.Store(true)
	c.done()
	return err
}
