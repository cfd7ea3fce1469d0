package config

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/internal/filter"
	"github.com/penstock/penstock/proxy/internal/wasm"
)

// A Rewrite rewrites the bytes of one direction by a WebAssembly module.
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

// Copied returns a line for each direction of a listener that a configuration takes off zero-copy, and says after
// which pause a sender can get bytes past the module.
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

// rewrites checks the rewriting of all listeners.
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

// rewrittenTLS complains of rewriting for TLS that is passed through: the module would find something only by chance,
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

// formerRewriteFix is what to write instead.
const formerRewriteFix = `write wasm: mask.wasm and config: "card token email pattern=…", by the module of examples/filters/mask (docs/filters.md)`

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
	id := module{sum: sha256.Sum256(r.Wasm.Bytes), config: sha256.Sum256([]byte(r.Config)), name: r.Title(), memory: r.Memory, rewrites: r.Direction}
	k.module(keyed{section: r, wasm: &r.Wasm, config: &r.Config, memory: &r.Memory}, &Unknown{id: id, load: func() error { return loadRewriter(r) }})
}

// loadRewriter loads a module with its settings, but interpreted, which starts sooner.
func loadRewriter(r *Rewrite) error {
	ctx, cancel := context.WithTimeout(context.Background(), loadTime)
	defer cancel()
	loaded, err := filter.NewRewriter(ctx, r.Wasm.Bytes, filter.RewriterConfig{
		Name: r.Title(), Config: r.Config, Bounds: wasm.Bounds{Memory: r.Memory, Interpret: true, Start: loadTime},
		FromServer: r.Direction == Down, Timeout: r.Timeout, Streams: 1, Counts: new(filter.StreamCounts),
	})
	if err == nil {
		loaded.Close()
	}
	return err
}
