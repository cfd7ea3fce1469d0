package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/internal/filter"
	"github.com/penstock/penstock/proxy/internal/wasm"
)

// A Filter is a module of WebAssembly that is asked about clients.
type Filter struct {
	Pos       Pos
	Wasm      Content       `key:"wasm" type:"module" required:"yes" eg:"names.wasm" doc:"File of the module, of at most 32MiB. It is read again by a reload."`
	Name      string        `key:"name" type:"name" default:"" eg:"names" doc:"Its name in logs, metrics and statuses. Filters of one listener that differ have different names. Empty: the name of the file, without .wasm."`
	Config    string        `key:"config" default:"" eg:"a.example b.example" doc:"Text that the module gets as its configuration."`
	Memory    int64         `key:"memory" type:"size" default:"1MiB" range:"64KiB..1GiB" doc:"Largest linear memory of an instance. A module of Go needs 3MiB at least."`
	Timeout   time.Duration `key:"timeout" default:"10ms" range:"100us..10s" doc:"Longest time of the module's calls about one client. An instance that takes longer is thrown away, and the client is treated as on_error says."`
	OnError   string        `key:"on_error" default:"deny" enum:"deny allow" doc:"Treatment of a client about whom the module has not answered: it has trapped, has run for too long, wants too much memory, its answer is none, or too many clients wait for it."`
	Preread   int64         `key:"preread" type:"size" default:"0" range:"0..16KiB" doc:"First bytes of a client that the module may see, at most; the first one is waited for then, for timeouts.preread. 0: none, and none is waited for."`
	Instances int           `key:"instances" default:"0" range:"0..256" doc:"Most instances of the module, each with a memory of its own: as many clients are asked about at a time. 1 has all clients asked in one memory. 0: as many as event loops."`
	Upstreams []string      `key:"upstreams" type:"upstream" eg:"canary" doc:"Upstreams to which the module may send clients. Empty: none but the route's own."`
}

// Title is its name in logs, metrics and statuses.
func (f *Filter) Title() string {
	if f.Name != "" {
		return f.Name
	}
	return strings.TrimSuffix(filepath.Base(string(f.Wasm.Path)), ".wasm")
}

// Same reports whether two filters are equal in all of their keys, the content of the module included.
func (f *Filter) Same(o *Filter) bool { return alike(f, o) }

// FilterOf returns the filter of a route, of the default route if that is nil; nil: there is none.
func (ln *Listener) FilterOf(r *Route) *Filter {
	if r != nil && r.Filter != nil {
		return r.Filter
	}
	return ln.Filter
}

// Filters returns the filters of a listener's routes, each one once.
func (ln *Listener) Filters() (filters []*Filter) {
	for _, f := range ln.ownFilters() {
		if !slices.ContainsFunc(filters, f.Same) {
			filters = append(filters, f)
		}
	}
	return filters
}

func (ln *Listener) ownFilters() []*Filter {
	return own(ln, ln.Filter, func(r *Route) *Filter { return r.Filter })
}

// FilteredTo returns the upstreams to which filters may send clients.
func (ln *Listener) FilteredTo() (upstreams []string) {
	for _, f := range ln.ownFilters() {
		for _, name := range f.Upstreams {
			if name != "" && !slices.Contains(upstreams, name) {
				upstreams = append(upstreams, name)
			}
		}
	}
	return upstreams
}

// A module identifies a filter, or a module that rewrites, as far as loading goes.
type module struct {
	sum      [sha256.Size]byte
	config   string
	memory   int64
	preread  bool
	rewrites string // the direction; empty: it is a filter
}

// accepted has the modules that were loaded without a complaint, in any configuration. Loading a large one takes seconds and
// hundreds of megabytes, and a check, a plan, a reload and a rollback would each do it again. A rejected module is loaded again:
// a time-out is not the module's fault.
var accepted modules

type modules struct {
	loading sync.Mutex // one at a time
	mu      sync.Mutex // held for moments alone, so that nobody waits for a module that others load
	all     map[module]bool
}

// mostAccepted bounds them: beyond it all are forgotten, and loaded again.
const mostAccepted = 256

func (a *modules) has(id module) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[id]
}

func (a *modules) add(id module) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil || len(a.all) == mostAccepted {
		a.all = make(map[module]bool)
	}
	a.all[id] = true
}

// load returns why a module cannot be loaded, or nil. It loads a module that was not accepted before.
func (a *modules) load(id module, load func() *complaint) (c *complaint) {
	if a.has(id) {
		return nil
	}
	a.loading.Lock()
	defer a.loading.Unlock()
	if a.has(id) { // by now
		return nil
	}
	if c = load(); c == nil {
		a.add(id)
	}
	return c
}

// loads returns why a module cannot be loaded, or nil. A check loads each module once.
func (k *checker) loads(id module, load func() *complaint) *complaint {
	if c, known := k.modules[id]; known {
		return c
	}
	c := accepted.load(id, load)
	k.modules[id] = c
	return c
}

// filters checks the filters of a listener.
func (k *checker) filters(ln *Listener) {
	names := make(map[string]*Filter)
	for _, f := range ln.ownFilters() {
		if k.bad[f] {
			continue
		}
		k.filter(ln, f)
		if o := names[f.Title()]; o == nil {
			names[f.Title()] = f
		} else if !o.Same(f) {
			k.complainAt(k.at(&f.Wasm, f), "write name: and another one", "the filter in line %d has the name %s too", o.Pos.Line, printable(f.Title()))
		}
	}
}

// filter checks one by itself.
func (k *checker) filter(ln *Listener, f *Filter) {
	for i := range f.Upstreams {
		k.upstreams.use(&f.Upstreams[i], f)
	}
	if ln.Postgres == "terminate" {
		k.complainAt(k.at(&f.Wasm, f), "leave filter out, or write postgres: passthrough", "postgres: terminate has routes of clients found after their TLS has ended, and a filter is asked before that")
	}
	if ln.TLS != nil && f.Preread > 0 {
		k.complainAt(k.at(&f.Preread, f), "leave preread out", "TLS is terminated here: the first bytes are a ClientHello, before the filter could see more")
	}
	if len(f.Wasm.Bytes) == 0 || k.bad[&f.Wasm] || k.bad[&f.Memory] || k.bad[&f.Config] || k.bad[&f.Preread] {
		if f.Wasm.Path != "" && len(f.Wasm.Bytes) == 0 && !k.bad[&f.Wasm] {
			k.complainAt(k.at(&f.Wasm, f), "write the name of a module", "%s is empty", f.Wasm.Path)
		}
		return
	}
	id := module{sum: sha256.Sum256(f.Wasm.Bytes), config: f.Config, memory: f.Memory, preread: f.Preread > 0}
	if c := k.loads(id, func() *complaint { return loadFilter(f) }); c != nil {
		k.complainAt(k.at(&f.Wasm, f), c.fix, "%s", c.message)
	}
}

// loadTime is how long loading one may take.
const loadTime = 30 * time.Second

// loadFilter loads a filter as it is going to be, but interpreted, which begins sooner.
func loadFilter(f *Filter) *complaint {
	ctx, cancel := context.WithTimeout(context.Background(), loadTime)
	defer cancel()
	loaded, err := filter.New(ctx, f.Wasm.Bytes, filter.Config{
		Name: f.Title(), Config: f.Config, Bounds: wasm.Bounds{Memory: f.Memory, Interpret: true, Start: loadTime},
		Timeout: f.Timeout, Preread: int(f.Preread), Instances: 1, Upstreams: f.Upstreams, Counts: new(filter.Ledger),
	})
	if err != nil {
		return complain(mendModule(f.Memory, err, "docs/filters.md"), "%s: %v", f.Wasm.Path, err)
	}
	loaded.Close()
	return nil
}

// mendModule returns the fix for a module that is not accepted, of so much memory, which a page of the documentation is about.
func mendModule(memory int64, err error, page string) string {
	switch {
	case errors.Is(err, wasm.ErrMemory):
		return fmt.Sprintf("write memory: %s or more", showSize(memory*4))
	case errors.Is(err, filter.ErrPreread):
		return "write preread: 4KiB, or as many bytes as it has to see"
	case errors.Is(err, filter.ErrConfiguration):
		return "write a config that the module accepts"
	case errors.As(err, new(*wasm.ImportError)):
		return "build it for the functions that are listed in " + page
	case errors.Is(err, wasm.ErrInvalid):
		return "write the name of a module of WebAssembly"
	}
	return "write the name of a module that does this, see " + page
}
