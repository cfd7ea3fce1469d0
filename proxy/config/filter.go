package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/internal/filter"
	"github.com/penstock/penstock/proxy/internal/wasm"
)

// A Filter is a WebAssembly module that decides about clients.
type Filter struct {
	Pos       Pos
	Wasm      Content       `key:"wasm" type:"module" required:"yes" eg:"names.wasm" doc:"WebAssembly file, at most 32MiB. A reload reads it again."`
	Name      string        `key:"name" type:"name" default:"" eg:"names" doc:"Name in logs, metrics and the status. Different filters of a listener have different names. Empty: the file's name without .wasm."`
	Config    string        `key:"config" default:"" eg:"a.example b.example" doc:"Text that the module gets as its configuration."`
	Memory    int64         `key:"memory" type:"size" default:"1MiB" range:"64KiB..1GiB" doc:"Largest linear memory of an instance. A module in Go needs at least 3MiB."`
	Timeout   time.Duration `key:"timeout" default:"10ms" range:"100us..10s" doc:"Longest time for one client. After it on_error applies, and the instance is discarded."`
	OnError   string        `key:"on_error" default:"deny" enum:"deny allow" doc:"What happens to a client if the module gave no answer, because it failed or too many clients wait for it."`
	Preread   int64         `key:"preread" type:"size" default:"0" range:"0..16KiB" doc:"How many of the client's first bytes the module can see. timeouts.preread bounds the wait for the first byte. 0: none, without a wait."`
	Instances int           `key:"instances" default:"0" range:"0..256" doc:"Number of instances of the module. Each handles one client at a time. 1: all clients share one memory. 0: as many as event loops."`
	Upstreams []string      `key:"upstreams" type:"upstream" eg:"canary" doc:"Upstreams to which the module may send clients, in addition to the upstream of the route."`
}

// Title returns the filter's name in logs, metrics and statuses.
func (f *Filter) Title() string {
	if f.Name != "" {
		return f.Name
	}
	return strings.TrimSuffix(filepath.Base(string(f.Wasm.Path)), ".wasm")
}

// Same reports whether two filters have equal keys, including the content of the module.
func (f *Filter) Same(o *Filter) bool { return alike(f, o) }

// FilterOf returns the filter of a route, or of the default route if r is nil. It returns nil without a filter.
func (ln *Listener) FilterOf(r *Route) *Filter {
	if r != nil && r.Filter != nil {
		return r.Filter
	}
	return ln.Filter
}

// Filters returns the filters of a listener's routes, each once.
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

// A module is the identity of a WebAssembly module: everything that it can see when it starts.
type module struct {
	sum, config [sha256.Size]byte
	name        string
	memory      int64
	preread     bool
	rewrites    string // the direction; empty for a filter
}

// loaded remembers the results of loading modules, for all configurations. Loading a large module takes seconds and
// hundreds of megabytes, and a check, a plan, a reload and a rollback would each load it again.
var loaded modules

type modules struct {
	mu  sync.Mutex // held only for moments, so that nobody waits while another goroutine loads a module
	all map[module]verdict
}

// A verdict is the result of loading a module.
type verdict struct {
	c     *complaint // nil if the module was accepted
	at    time.Time  // when the module timed out; zero if it did not
	until time.Time  // when a module that timed out, perhaps by no fault of its own, may be loaded again; zero means never
}

// Limits of the remembered results. Beyond mostModules all are forgotten, and loaded again. A module that timed out is
// not loaded again for timeoutRests times the time limit. A reload, which may have waited for the module, tries again
// after justNow.
const (
	mostModules  = 4096
	timeoutRests = 4
	justNow      = 5 * time.Second
)

func (m *modules) get(id module) (v verdict, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, known = m.all[id]
	return v, known && (v.until.IsZero() || time.Now().Before(v.until))
}

func (m *modules) put(id module, v verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil || len(m.all) >= mostModules {
		m.all = make(map[module]verdict)
	}
	m.all[id] = v
}

// An Unknown is a WebAssembly module that [LoadKnown] found, and that this process has not loaded yet.
type Unknown struct {
	id   module
	load func() error
}

// Load loads the module, unless it has been loaded meanwhile, and remembers the result. It takes at most 30 seconds.
func (u *Unknown) Load() {
	if _, known := loaded.get(u.id); !known {
		u.judge()
	}
}

// judge loads the module, and remembers the result.
func (u *Unknown) judge() (v verdict) {
	began := time.Now()
	if err := u.load(); err != nil {
		v.c = mendModule(u.id.memory, err)
		if errors.Is(err, wasm.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
			v.at = time.Now()
			v.until = v.at.Add(timeoutRests * v.at.Sub(began))
		}
	}
	loaded.put(u.id, v)
	return v
}

// loads returns why a module cannot be loaded, or nil. A check loads each module once, except modules that were
// accepted before. It loads a rejected module again, so that a new reload is a new try, unless the module has just timed
// out. After a module that timed out it loads no others: each may take as long, and the file is refused anyway. For
// [LoadKnown] it loads nothing.
func (k *checker) loads(u *Unknown) *complaint {
	if c, known := k.modules[u.id]; known {
		return c
	}
	v, known := loaded.get(u.id)
	switch {
	case k.known && !known:
		k.unloaded = append(k.unloaded, u)
	case !k.known && !k.late && (!known || v.c != nil && time.Since(v.at) >= justNow):
		v = u.judge()
	}
	k.late = k.late || !v.at.IsZero()
	k.modules[u.id] = v.c
	return v.c
}

// A keyed has pointers to the keys of a module in the configuration.
type keyed struct {
	section any
	wasm    *Content
	config  *string
	memory  *int64
	preread *int64 // nil for a module that rewrites
}

// module complains of a module that cannot be loaded, at the key that causes it.
func (k *checker) module(of keyed, u *Unknown) {
	c := k.loads(u)
	if c == nil {
		return
	}
	at := k.at(of.wasm, of.section)
	for key, field := range map[string]any{"config": of.config, "memory": of.memory, "preread": of.preread} {
		if key == c.key && k.given(field) {
			at = k.at(field, of.section)
		}
	}
	k.complainAt(at, c.fix, "%s: %s", of.wasm.Path, c.message)
}

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
			k.complainAt(k.at(&f.Wasm, f), "write name: and another name", "the filter in line %d is also named %s", o.Pos.Line, printable(f.Title()))
		}
	}
}

func (k *checker) filter(ln *Listener, f *Filter) {
	for i := range f.Upstreams {
		k.upstreams.use(&f.Upstreams[i], f)
	}
	if ln.Postgres == "terminate" {
		k.complainAt(k.at(&f.Wasm, f), "leave filter out, or write postgres: passthrough", "with postgres: terminate a client's route is chosen after its TLS handshake, but a filter would run before it")
	}
	if ln.TLS != nil && f.Preread > 0 {
		k.complainAt(k.at(&f.Preread, f), "leave preread out", "TLS is terminated here: the filter could see only the ClientHello")
	}
	if len(f.Wasm.Bytes) == 0 || k.bad[&f.Wasm] || k.bad[&f.Memory] || k.bad[&f.Config] || k.bad[&f.Preread] {
		if f.Wasm.Path != "" && len(f.Wasm.Bytes) == 0 && !k.bad[&f.Wasm] {
			k.complainAt(k.at(&f.Wasm, f), "write the name of a module", "%s is empty", f.Wasm.Path)
		}
		return
	}
	id := module{sum: k.decoder.modules[string(f.Wasm.Path)].sum, config: sha256.Sum256([]byte(f.Config)), name: f.Title(), memory: f.Memory, preread: f.Preread > 0}
	k.module(keyed{f, &f.Wasm, &f.Config, &f.Memory, &f.Preread}, &Unknown{id: id, load: func() error {
		return loading(func(ctx context.Context) (*filter.Filter, error) {
			return filter.New(ctx, f.Wasm.Bytes, filter.Config{
				Name: f.Title(), Config: f.Config, Bounds: wasm.Bounds{Memory: f.Memory, Interpret: true, Start: loadTime},
				Timeout: f.Timeout, Preread: int(f.Preread), Instances: 1, Upstreams: f.Upstreams,
			})
		})
	}})
}

// loadTime limits how long loading a module may take.
const loadTime = 30 * time.Second

// loading loads a module with its settings. The module is interpreted, because this starts sooner.
func loading[M interface{ Close() }](load func(ctx context.Context) (M, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), loadTime)
	defer cancel()
	loaded, err := load(ctx)
	if err == nil {
		loaded.Close()
	}
	return err
}

// mendModule returns why a module with this memory limit is rejected, with the key to change.
func mendModule(memory int64, err error) *complaint {
	c := complain("write the name of a module that does this, see docs/filters.md", "%v", err)
	var need *wasm.MemoryError
	switch {
	case errors.As(err, &need) && need.Least > wasm.MaxMemory, errors.Is(err, wasm.ErrMemory) && memory == wasm.MaxMemory:
		c.key, c.fix = "memory", "write the name of a module that needs less memory, at most "+showSize(wasm.MaxMemory)
	case errors.As(err, &need):
		c.key, c.fix = "memory", fmt.Sprintf("write memory: %s or more", showSize(need.Least))
	case errors.Is(err, wasm.ErrMemory):
		c.key, c.fix = "memory", fmt.Sprintf("write memory: %s or more", showSize(min(max(memory*4, 4<<20), wasm.MaxMemory)))
	case errors.Is(err, filter.ErrPreread):
		c.key, c.fix = "preread", "write preread: 4KiB, or as many bytes as the module needs"
	case errors.Is(err, filter.ErrConfiguration):
		c.key, c.fix = "config", "write a config that the module accepts"
	case errors.As(err, new(*wasm.ImportError)):
		c.fix = "build the module for the functions that docs/filters.md lists"
	case errors.Is(err, wasm.ErrTimeout):
		c.fix = "try again when the machine is less busy, or write the name of a module that starts faster"
	case errors.Is(err, wasm.ErrInvalid):
		c.fix = "write the name of a module of WebAssembly"
	}
	return c
}

// A Rewrite rewrites the bytes of one direction with a WebAssembly module.
type Rewrite struct {
	Pos       Pos
	Direction string        `key:"direction" required:"yes" enum:"up down none" doc:"up: from clients to endpoints. down: from endpoints to clients. These bytes are copied, not spliced. none: this route rewrites nothing."`
	Wasm      Content       `key:"wasm" type:"module" default:"" eg:"mask.wasm" doc:"WebAssembly file, at most 32MiB. A reload reads it again."`
	Hold      time.Duration `key:"hold" default:"1s" range:"1ms..1m" doc:"If the module wants more bytes and none arrive, it is called again after this time, or after twice this time at most. A sender that pauses longer in the middle of a match may get the match past the module."`
	Config    string        `key:"config" default:"" eg:"secret=xxxxxx" doc:"Text that the module gets as its configuration."`
	Memory    int64         `key:"memory" type:"size" default:"1MiB" range:"64KiB..1GiB" doc:"Largest linear memory of an instance. Each session has an instance. A module in Go needs at least 3MiB."`
	Timeout   time.Duration `key:"timeout" default:"10ms" range:"100us..10s" doc:"Longest time for one chunk of a session's bytes (at most 16KiB). After it on_error applies."`
	OnError   string        `key:"on_error" default:"reset" enum:"reset pass" doc:"What happens if the module fails or has filled its buffer. reset: both sides are reset. pass: all later bytes are forwarded unchanged."`
	Buffer    int64         `key:"buffer" type:"size" default:"64KiB" range:"1KiB..1MiB" doc:"Most bytes of a session that the module may hold, input and output."`
	Instances int           `key:"instances" default:"256" range:"1..65536" doc:"Most instances, one for each session. Further sessions are reset, whatever on_error is."`
	Spare     int           `key:"spare" default:"4" range:"0..1024" doc:"Instances that are started in advance for new sessions. A module in Go takes 10 ms or more to start."`
}

// Down is the direction from endpoints to clients.
const Down = "down"

// Active reports whether anything is rewritten. r may be nil.
func (r *Rewrite) Active() bool {
	return r != nil && r.Direction != "none" && r.Wasm.Path != ""
}

// Title returns the module's name in logs and statuses.
func (r *Rewrite) Title() string {
	return strings.TrimSuffix(filepath.Base(string(r.Wasm.Path)), ".wasm")
}

// SameModule reports whether two rewrites have the same direction, and equal keys for their modules, including the
// content.
func (r *Rewrite) SameModule(o *Rewrite) bool { return alike(r, o, "hold") }

// RewriteOf returns the rewriting of a route, or of the default route if r is nil. It returns nil without rewriting.
func (ln *Listener) RewriteOf(r *Route) *Rewrite {
	if r != nil && r.Rewrite != nil {
		return r.Rewrite
	}
	return ln.Rewrite
}

// Rewrites reports whether some clients are rewritten.
func (ln *Listener) Rewrites() bool { return len(ln.active()) > 0 }

// active returns the rewrites of a listener's routes that rewrite anything.
func (ln *Listener) active() []*Rewrite {
	all := own(ln, ln.Rewrite, func(r *Route) *Rewrite { return r.Rewrite })
	return slices.DeleteFunc(all, func(r *Rewrite) bool { return !r.Active() })
}

// Modules returns the rewrites of a listener's routes, one for each module.
func (ln *Listener) Modules() (rewrites []*Rewrite) {
	for _, r := range ln.active() {
		if !slices.ContainsFunc(rewrites, r.SameModule) {
			rewrites = append(rewrites, r)
		}
	}
	return rewrites
}

// Copied returns a line for each direction of a listener that is copied instead of spliced because of the
// configuration. The line says after which pause a sender can get bytes past the module.
func Copied(c *Config) (lines []string) {
	for _, ln := range c.Listeners {
		holds := make(map[string]time.Duration) // the shortest hold of each direction
		for _, r := range ln.active() {
			if hold, ok := holds[r.Direction]; !ok || r.Hold < hold {
				holds[r.Direction] = r.Hold
			}
		}
		for _, direction := range slices.Sorted(maps.Keys(holds)) {
			what := "from clients to endpoints"
			if direction == Down {
				what = "from endpoints to clients"
			}
			lines = append(lines, fmt.Sprintf("listener %s: rewrite: bytes %s are copied, not spliced (this direction is not zero-copy); "+
				"a sender that pauses for longer than %s (hold) in the middle of a match may get the match past the module", ln.Name, what, ShowDuration(holds[direction])))
		}
	}
	return lines
}

func (k *checker) rewrites(c *Config) {
	for _, ln := range c.Listeners {
		k.rewrite(ln.Rewrite)
		k.rewrittenTLS(ln, nil, ln.RequireTLS)
		k.rewrittenPostgres(ln, ln.Rewrite)
		for i := range ln.Routes {
			r := &ln.Routes[i]
			k.rewrite(r.Rewrite)
			k.rewrittenTLS(ln, r, ln.RequireTLS || len(r.Match.SNI)+len(r.Match.ALPN) > 0 || slices.Contains(r.Match.Protocol, "tls"))
			k.rewrittenSSH(ln, r)
			k.rewrittenPostgres(ln, r.Rewrite)
		}
	}
}

// rewrittenTLS complains of rewriting TLS that is passed through: a module would match encrypted bytes only by chance,
// and break the connection.
func (k *checker) rewrittenTLS(ln *Listener, r *Route, encrypted bool) {
	w := ln.RewriteOf(r)
	if ln.TLS != nil || !encrypted || !w.Active() || r != nil && r.Rewrite == nil && ln.RequireTLS || k.bad[w] {
		return
	}
	fix := "write tls at the listener, or leave rewrite out"
	if r != nil && r.Rewrite == nil {
		fix = fmt.Sprintf("write tls at the listener, or rewrite: {direction: none} at the route in line %d", r.Pos.Line)
	}
	k.complainAt(k.at(&w.Direction, w), fix, "TLS is passed through: encrypted bytes cannot be rewritten")
}

// rewrittenSSH complains of rewriting on a route that SSH clients take: their bytes are encrypted.
func (k *checker) rewrittenSSH(ln *Listener, r *Route) {
	w := ln.RewriteOf(r)
	if !w.Active() || k.bad[w] || k.bad[&r.Match.Protocol] || !slices.Contains(r.Match.Protocol, "ssh") {
		return
	}
	fix := "leave rewrite out"
	if r.Rewrite == nil {
		fix = fmt.Sprintf("write rewrite: {direction: none} at the route in line %d", r.Pos.Line)
	}
	k.complainAt(k.at(&w.Direction, w), fix, "SSH is passed through: encrypted bytes cannot be rewritten")
}

// rewrittenPostgres complains of rewriting at a PostgreSQL listener that passes the clients' TLS through.
func (k *checker) rewrittenPostgres(ln *Listener, w *Rewrite) {
	if ln.Postgres == PostgresPassthrough && w.Active() && !k.bad[w] && !k.bad[&ln.Postgres] {
		k.complainAt(k.at(&w.Direction, w), "write postgres: terminate and tls at the listener, or leave rewrite out", "TLS is passed through: encrypted bytes cannot be rewritten")
	}
}

// formerRewriteKeys are removed keys of a rewrite.
var formerRewriteKeys = []string{"mask", "patterns", "framing"}

// formerRewriteFix says what to write instead.
const formerRewriteFix = `write wasm: mask.wasm and config: "card token email pattern=…", with the module in examples/filters/mask (docs/filters.md)`

func (k *checker) rewrite(r *Rewrite) {
	if r == nil || k.bad[r] || k.bad[&r.Direction] || r.Direction == "" || k.bad[&r.Wasm] {
		return
	}
	if r.Wasm.Path == "" {
		if r.Direction != "none" && !k.strange[r] {
			k.complainAt(k.at(&r.Direction, r), "write wasm, or direction: none", "neither wasm nor direction: none is written")
		}
		return
	}
	if r.Direction == "none" || k.bad[&r.Memory] || k.bad[&r.Config] {
		return
	}
	if len(r.Wasm.Bytes) == 0 {
		k.complainAt(k.at(&r.Wasm, r), "write the name of a module", "%s is empty", r.Wasm.Path)
		return
	}
	id := module{sum: k.decoder.modules[string(r.Wasm.Path)].sum, config: sha256.Sum256([]byte(r.Config)), name: r.Title(), memory: r.Memory, rewrites: r.Direction}
	k.module(keyed{section: r, wasm: &r.Wasm, config: &r.Config, memory: &r.Memory}, &Unknown{id: id, load: func() error {
		return loading(func(ctx context.Context) (*filter.Rewriter, error) {
			return filter.NewRewriter(ctx, r.Wasm.Bytes, filter.RewriterConfig{FromServer: r.Direction == Down, Config: filter.Config{
				Name: r.Title(), Config: r.Config, Bounds: wasm.Bounds{Memory: r.Memory, Interpret: true, Start: loadTime}, Timeout: r.Timeout, Instances: 1,
			}})
		})
	}})
}
