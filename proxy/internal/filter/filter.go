package filter

import (
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
	// Name is in log lines, and the filter's own plugin_name.
	Name string
	// Config is the text that the filter gets as the plugin's configuration.
	Config string
	Bounds wasm.Bounds
	// Soon has a large module interpreted at first, and compiled meanwhile: the filter is there in a tenth of
	// the time. Its instances are others then.
	Soon bool
	// Timeout is how long the calls about one client may take together.
	Timeout time.Duration
	// OnError is the verdict on a client on which the filter has no answer: [Allow] or [Deny].
	OnError Verdict
	// Preread is how many of a client's first bytes it may see, at most; 0: none, and none is waited for.
	Preread int
	// Instances is how many there may be; 0: 1.
	Instances int
	// Upstreams are the names that [Route] may have.
	Upstreams []string
	// Counts has the counts of the filter. Required.
	Counts *Ledger
	// Log gets lines of the filter, in bounded number and size, on goroutines of the filter's; nil: none does.
	// level is that of proxy_log: 0 trace, 1 debug, 2 info, 3 warning, 4 error, 5 critical.
	Log func(level int, line string)
}

// MaxPreread is the most that [Config.Preread] may be.
const MaxPreread = 16 << 10

// A Filter may be used by several goroutines.
type Filter struct {
	cfg    Config
	engine atomic.Pointer[engine] // that answers
	counts *Ledger
	log    logger
	data   bool   // it wants to see first bytes
	stream string // the function that rewrites a stream, for a [Rewriter]; empty: it is asked about clients
	spare  int    // instances that are ready for streams

	mu          sync.Mutex
	first, last *Call // of those that wait
	waiting     int
	running     int // goroutines

	goroutines sync.WaitGroup
	retire     sync.Once
	retired    chan struct{} // closed: no goroutine rests any more
}

// Of the clients that wait there are at most so many, and so many bytes.
const (
	maxWaiting      = 8192
	maxWaitingBytes = 16 << 20
)

// mayWait is how many clients may wait.
func (f *Filter) mayWait() int { return min(maxWaiting, maxWaitingBytes/max(f.cfg.Preread, 1)) }

// New loads a filter, and makes its first instance, so that one that cannot begin is found. An error
// matches those of package wasm.
func New(ctx context.Context, code []byte, cfg Config) (*Filter, error) {
	f := newFilter(cfg)
	if err := f.start(ctx, code); err != nil {
		return nil, err
	}
	return f, nil
}

func newFilter(cfg Config) *Filter {
	f := &Filter{cfg: cfg, counts: cfg.Counts, retired: make(chan struct{})}
	f.log.counts, f.log.to = &cfg.Counts.counts, cfg.Log
	return f
}

// start loads the module.
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
		f.goroutines.Go(func() { f.compile(code) })
	}
	return nil
}

const version = "proxy_abi_version_0_2_"

// exports are the functions of a module that are called, if they are there.
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

// check returns why a module is no filter.
func (f *Filter) check(module *wasm.Module) error {
	there := func(name string) bool { ok, _ := module.Exports(name, nil, nil); return ok }
	if !there(version+"1") && !there(version+"0") {
		return fmt.Errorf("the module exports no %s1: it is none of proxy-wasm", version)
	}
	if f.stream != "" {
		return f.checkStream(module)
	}
	if !there("proxy_on_new_connection") && !there("proxy_on_downstream_data") {
		return errors.New("the module exports neither proxy_on_new_connection nor proxy_on_downstream_data: it decides nothing")
	}
	if err := checkExports(module); err != nil {
		return err
	}
	if there("proxy_on_downstream_data") && !there("proxy_on_new_connection") && f.cfg.Preread == 0 {
		return ErrPreread
	}
	return nil
}

// checkExports looks at the functions that are called.
func checkExports(module *wasm.Module) error {
	for name, of := range exports {
		if ok, fits := module.Exports(name, ints(of.params), ints(of.results)); ok && !fits {
			return fmt.Errorf("the module's %s has other parameters or results than proxy-wasm has", name)
		}
	}
	return nil
}

// Name returns its name.
func (f *Filter) Name() string { return f.cfg.Name }

// OnError is the verdict on a client on which it has no answer: [Allow] or [Deny].
func (f *Filter) OnError() Verdict { return f.cfg.OnError }

// Preread returns how many first bytes it may see, 0 if it wants none.
func (f *Filter) Preread() int {
	if !f.data {
		return 0
	}
	return f.cfg.Preread
}

// Retire closes the instances once their calls are over. Clients that are late are answered still, and nothing
// rests after a failure any more: they are few, and wait for a bounded time.
func (f *Filter) Retire() {
	f.retire.Do(func() { close(f.retired) })
	f.engine.Load().pool.Close()
}

// Close frees the filter, about which no client may be asked any more. It waits for the calls that are under way.
func (f *Filter) Close() {
	f.Retire()
	f.goroutines.Wait()
	e := f.engine.Load()
	e.pool.Close()
	e.pool.Wait()
	_ = e.module.Close()
}

// A Call is a question about one client. It is used once.
type Call struct {
	// Of is the client. Its slices are the filter's until the answer is there.
	Of Connection

	answer   Answer
	done     func()
	over     atomic.Bool // answer is there
	canceled atomic.Bool
	next     *Call
}

// Answer returns the answer, if it is there.
func (c *Call) Answer() (Answer, bool) {
	if !c.over.Load() {
		return Answer{}, false
	}
	return c.answer, true
}

// Cancel says that the answer is not waited for any more.
func (c *Call) Cancel() { c.canceled.Store(true) }

// Overloaded counts a client that has waited for too long.
func (f *Filter) Overloaded() { f.counts.verdicts[Overload].Add(1) }

// Ask asks about a client. done is called by another goroutine when the answer is there; it must not wait.
// With false there are too many that wait, and done is not called.
func (f *Filter) Ask(c *Call, done func()) bool {
	c.done = done
	f.mu.Lock()
	if f.waiting >= f.mayWait() {
		f.mu.Unlock()
		f.Overloaded()
		return false
	}
	if f.last != nil {
		f.last.next = c
	} else {
		f.first = c
	}
	f.last = c
	f.waiting++
	start := f.running < max(f.cfg.Instances, 1)
	if start {
		f.running++
	}
	f.mu.Unlock()
	if start {
		f.goroutines.Go(f.run)
	}
	return true
}

// take takes the first of those that wait; nil: there is none, and the goroutine has to end.
func (f *Filter) take() *Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		c := f.first
		if c == nil {
			f.running--
			return nil
		}
		if f.first = c.next; f.first == nil {
			f.last = nil
		}
		c.next = nil
		f.waiting--
		if !c.canceled.Load() {
			return c
		}
	}
}

// rests is how much longer than a failed call a goroutine rests after it.
const rests = 4

// run answers clients for as long as some wait.
func (f *Filter) run() {
	for {
		c := f.take()
		if c == nil {
			return
		}
		began := time.Now()
		err := f.answer(c)
		if failed := time.Since(began); err != nil {
			f.rest(rests * failed)
		}
	}
}

// rest waits for a time, or for the filter's retirement.
func (f *Filter) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.retired:
	}
}

// answer answers a client, and returns why the filter has not.
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
	runtime.KeepAlive(e) // its module is freed after that
	n := f.counts
	n.took(time.Since(began))
	if err != nil {
		n.failures[failureOf(err)].Add(1)
		if c.answer.Verdict != Deny { // a denial stays, whatever follows
			c.answer = Answer{Verdict: f.cfg.OnError, Tags: c.answer.Tags}
		}
		c.answer.Err = fmt.Errorf("filter %s: %w", f.cfg.Name, err)
	}
	n.verdicts[c.answer.Verdict].Add(1)
	if c.answer.Tags != "" {
		n.tagged.Add(1)
	}
	c.over.Store(true)
	c.done()
	return err
}
