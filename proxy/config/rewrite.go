package config

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/internal/filter"
	"github.com/penstock/penstock/proxy/internal/mask"
	"github.com/penstock/penstock/proxy/internal/wasm"
)

// A Rewrite has the bytes of one direction rewritten, by masks or by a module of WebAssembly.
type Rewrite struct {
	Pos       Pos
	Direction string        `key:"direction" required:"yes" enum:"up down none" doc:"Direction whose bytes are rewritten: up is from clients to endpoints, down from endpoints to clients. They are copied: that direction is not zero-copy. none: nothing is rewritten, at a route of a listener that has a rewrite."`
	Wasm      Content       `key:"wasm" type:"module" default:"" eg:"replace.wasm" doc:"File of a module of WebAssembly that rewrites the bytes, in place of mask and patterns, of at most 32MiB. It is read again by a reload. Empty: there is none."`
	Mask      []string      `key:"mask" enum:"card token email" eg:"card" doc:"What is replaced by asterisks: numbers of payment cards but for the last four digits, tokens but for their prefixes, and addresses of e-mail. Each match keeps its length. Compressed and encrypted bytes are not seen."`
	Patterns  []string      `key:"patterns" eg:"ID-[0-9]{6}" doc:"Regular expressions (RE2) whose matches are replaced by asterisks, of at most 256 bytes each: without * and +, and without ^, $ and \\b."`
	Framing   string        `key:"framing" default:"bytes" enum:"bytes postgres resp" doc:"Protocol of the clients, which says where each text begins and ends: texts are masked one by one, and nothing else is changed. A session whose bytes are not of it is reset. bytes: none, for protocols of lines: a match may begin or end in a byte that is none of a text, which breaks protocols with binary lengths."`
	Hold      time.Duration `key:"hold" default:"10ms" range:"1ms..1m" doc:"How long the last bytes that came are held back if they may be the beginning of a match, and nothing follows; twice that at most. Then they go on as they are, but with framing, which has them wait for the end of their value; with wasm, the module is asked about them once more."`
	Config    string        `key:"config" default:"" eg:"secret=xxxxxx" doc:"Text that the module of wasm gets as its configuration."`
	Memory    int64         `key:"memory" type:"size" default:"1MiB" range:"64KiB..1GiB" doc:"Largest linear memory of an instance of the module; each session has an instance. A module of Go needs 3MiB at least."`
	Timeout   time.Duration `key:"timeout" default:"10ms" range:"100us..10s" doc:"Longest time of the module's calls about one chunk of a session's bytes, of 16KiB at most. An instance that takes longer is thrown away, and the session is treated as on_error says."`
	OnError   string        `key:"on_error" default:"reset" enum:"reset pass" doc:"Treatment of a session whose module has failed: it has trapped, has run for too long, wants too much memory, has filled its buffer, or its answer is none. reset: both sides are reset. pass: its bytes go on as they came, from the chunk of the failure on."`
	Buffer    int64         `key:"buffer" type:"size" default:"64KiB" range:"1KiB..1MiB" doc:"Most bytes of a session that the module may have in hand: those that it holds back, those that come, and those that they become."`
	Instances int           `key:"instances" default:"256" range:"1..65536" doc:"Most instances of the module, which is as many sessions. One more is reset when its first bytes come, whatever on_error is."`
}

// Down is the direction from endpoints to clients.
const Down = "down"

// PostgresFraming is the framing of PostgreSQL's protocol.
const PostgresFraming = "postgres"

// Active reports whether anything is rewritten. r may be nil.
func (r *Rewrite) Active() bool {
	return r != nil && r.Direction != "none" && (len(r.Mask)+len(r.Patterns) > 0 || r.Wasm.Path != "")
}

// Module reports whether a module of WebAssembly rewrites. r may be nil.
func (r *Rewrite) Module() bool { return r.Active() && r.Wasm.Path != "" }

// Title is the module's name in logs and statuses.
func (r *Rewrite) Title() string {
	return strings.TrimSuffix(filepath.Base(string(r.Wasm.Path)), ".wasm")
}

func (r *Rewrite) same(o *Rewrite) bool {
	return slices.Equal(r.Mask, o.Mask) && slices.Equal(r.Patterns, o.Patterns) && r.Framing == o.Framing && r.Hold == o.Hold && r.SameModule(o)
}

// SameModule reports whether two rewrites are equal in the direction, and in all keys of their modules, the content included.
func (r *Rewrite) SameModule(o *Rewrite) bool {
	return r.Direction == o.Direction && r.Wasm.Path == o.Wasm.Path && bytes.Equal(r.Wasm.Bytes, o.Wasm.Bytes) && r.Config == o.Config &&
		r.Memory == o.Memory && r.Timeout == o.Timeout && r.OnError == o.OnError && r.Buffer == o.Buffer && r.Instances == o.Instances
}

// RewriteOf returns the rewriting of a route, of the default route if that is nil; nil: there is none.
func (ln *Listener) RewriteOf(r *Route) *Rewrite {
	if r != nil && r.Rewrite != nil {
		return r.Rewrite
	}
	return ln.Rewrite
}

// Rewrites reports whether some clients are rewritten.
func (ln *Listener) Rewrites() bool { return len(ln.rewritten()) > 0 }

// rewritten returns the directions that are rewritten.
func (ln *Listener) rewritten() (directions []string) {
	add := func(r *Rewrite) {
		if r.Active() && !slices.Contains(directions, r.Direction) {
			directions = append(directions, r.Direction)
		}
	}
	add(ln.Rewrite)
	for i := range ln.Routes {
		add(ln.Routes[i].Rewrite)
	}
	return directions
}

// Modules returns the rewrites of a listener's routes that are by modules, each one once.
func (ln *Listener) Modules() (rewrites []*Rewrite) {
	add := func(r *Rewrite) {
		if r.Module() && !slices.ContainsFunc(rewrites, r.SameModule) {
			rewrites = append(rewrites, r)
		}
	}
	add(ln.Rewrite)
	for i := range ln.Routes {
		add(ln.Routes[i].Rewrite)
	}
	return rewrites
}

// Copied returns a line for each direction of a listener of which a configuration ends zero-copy.
func Copied(c *Config) (lines []string) {
	for _, ln := range c.Listeners {
		for _, direction := range ln.rewritten() {
			what := "from clients to endpoints"
			if direction == Down {
				what = "from endpoints to clients"
			}
			lines = append(lines, fmt.Sprintf("listener %s: rewrite: bytes %s are copied, not spliced: that direction is not zero-copy", ln.Name, what))
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
			k.rewrittenProtocol(ln, r)
			k.rewrittenPostgres(ln, r.Rewrite)
			k.rewrittenFraming(ln, r)
		}
	}
}

// rewrite checks one by itself.
func (k *checker) rewrite(r *Rewrite) {
	if r == nil || k.bad[r] || k.bad[&r.Direction] || r.Direction == "" {
		return
	}
	switch {
	case r.Wasm.Path != "":
		k.rewriteModule(r)
		return
	case len(r.Mask)+len(r.Patterns) == 0 && r.Direction != "none" && !k.bad[&r.Mask] && !k.bad[&r.Patterns] && !k.bad[&r.Wasm]:
		k.complainAt(k.at(&r.Direction, r), "write mask: [card, token, email], or direction: none", "nothing says what is to be rewritten")
		return
	case r.Config != "" && !k.bad[&r.Wasm]:
		k.complainAt(k.at(&r.Config, r), "leave config out, or write wasm", "config is of a module, and there is none")
	}
	for i := range r.Mask {
		if slices.Contains(r.Mask[:i], r.Mask[i]) && !k.bad[&r.Mask[i]] {
			k.complainAt(k.at(&r.Mask[i], r), "leave one out", "%s is listed twice", r.Mask[i])
		}
	}
	before := len(k.problems)
	for i := range r.Patterns {
		if err := mask.CheckPattern(r.Patterns[i]); err != nil && !k.bad[&r.Patterns[i]] {
			k.complainAt(k.at(&r.Patterns[i], r), patternFix(err), "the pattern %s cannot be masked in a stream: %v", quoted(r.Patterns[i]), err)
		}
	}
	if _, err := mask.New(nil, r.Patterns); err != nil && len(k.problems) == before {
		k.complainAt(k.at(&r.Patterns, r), "write fewer, or shorter ones", "the patterns are too large together: %v", err)
	}
}

// patternFix is what to write in place of a pattern that is refused.
func patternFix(err error) string {
	switch {
	case errors.Is(err, mask.ErrUnbounded):
		return "write counts such as {1,64} in place of * and +, for 256 bytes at most"
	case errors.Is(err, mask.ErrEmpty):
		return "write one that has at least one character"
	case errors.Is(err, mask.ErrAssertion):
		return "write it without them"
	case errors.Is(err, mask.ErrNotASCII):
		return `write such characters as the bytes of their UTF-8, such as \xc3\xa4`
	case errors.Is(err, mask.ErrLarge):
		return "write smaller counts, or several patterns"
	}
	return "write a regular expression of RE2 (https://golang.org/s/re2syntax)"
}

// rewrittenTLS complains of TLS that is passed through and would be rewritten: nothing would be found but by chance, and that breaks the
// connection.
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

// rewrittenProtocol complains of a route to which only clients come whose bytes cannot be rewritten.
func (k *checker) rewrittenProtocol(ln *Listener, r *Route) {
	w := ln.RewriteOf(r)
	if !w.Active() || k.bad[w] || k.bad[&r.Match.Protocol] {
		return
	}
	for protocol, why := range map[string]string{
		"ssh":   "SSH is passed through: encrypted bytes cannot be rewritten",
		"http2": "HTTP/2 cannot be rewritten: its headers are compressed, and its frames have binary lengths",
	} {
		if protocol == "http2" && w.Module() { // which may read frames
			continue
		}
		if !slices.Contains(r.Match.Protocol, protocol) {
			continue
		}
		fix := "leave rewrite out"
		if r.Rewrite == nil {
			fix = fmt.Sprintf("write rewrite: {direction: none} at the route in line %d", r.Pos.Line)
		}
		k.complainAt(k.at(&w.Direction, w), fix, "%s", why)
	}
}

// framings are the protocols by which clients are recognised that have a framing of rewrites.
var framings = map[string]string{"postgres": PostgresFraming, "redis": "resp"}

// rewrittenFraming complains of masks of a route whose clients are known to speak a protocol with a framing that the masks do not have. Where they may
// speak others, too, it warns.
func (k *checker) rewrittenFraming(ln *Listener, r *Route) {
	w := ln.RewriteOf(r)
	if !w.Active() || k.bad[w] || k.bad[&w.Framing] || k.bad[&r.Match.Protocol] || ln.SpeaksPostgres() {
		return
	}
	protocols := r.Match.Protocol
	if len(r.Match.User)+len(r.Match.Database) > 0 { // which no others name
		protocols = []string{"postgres"}
	}
	for _, protocol := range protocols {
		framing := framings[protocol]
		if framing == "" || w.Framing == framing {
			continue
		}
		fix := "write framing: " + framing
		if r.Rewrite == nil {
			fix = fmt.Sprintf("write a rewrite with framing: %s at the route in line %d", framing, r.Pos.Line)
		}
		const text = "clients of this route speak %s: the masks would change bytes of its messages beside the texts"
		if len(protocols) > 1 {
			k.warnAt(k.at(&w.Framing, w), fix+", and one route for each protocol", text, protocol)
			return
		}
		k.complainAt(k.at(&w.Framing, w), fix, text, protocol)
	}
}

// rewrittenPostgres complains of a rewrite at a listener of PostgreSQL: where clients may begin TLS that is passed through, and where nothing
// says that it is PostgreSQL's messages that are to stay valid.
func (k *checker) rewrittenPostgres(ln *Listener, w *Rewrite) {
	switch {
	case !ln.SpeaksPostgres() || !w.Active() || k.bad[w] || k.bad[&ln.Postgres]:
	case ln.Postgres == PostgresPassthrough:
		k.complainAt(k.at(&w.Direction, w), "write postgres: terminate and tls at the listener, or leave rewrite out", "TLS is passed through: encrypted bytes cannot be rewritten")
	case w.Framing != PostgresFraming && !w.Module() && !k.bad[&w.Framing]:
		k.complainAt(k.at(&w.Framing, w), "write framing: postgres", "the masks would change bytes of PostgreSQL's messages beside the texts")
	}
}

// rewriteModule checks a rewrite by a module.
func (k *checker) rewriteModule(r *Rewrite) {
	if len(r.Mask)+len(r.Patterns) > 0 {
		k.complainAt(k.at(&r.Wasm, r), "leave mask and patterns out, or wasm", "a direction is rewritten by masks or by a module, not by both")
	}
	if r.Framing != "bytes" && !k.bad[&r.Framing] {
		k.complainAt(k.at(&r.Framing, r), "leave framing out", "framing is of masks: a module finds messages by itself")
	}
	if r.Direction == "none" || k.bad[&r.Wasm] || k.bad[&r.Memory] || k.bad[&r.Config] {
		return
	}
	if len(r.Wasm.Bytes) == 0 {
		k.complainAt(k.at(&r.Wasm, r), "write the name of a module", "%s is empty", r.Wasm.Path)
		return
	}
	id := module{sum: sha256.Sum256(r.Wasm.Bytes), config: r.Config, memory: r.Memory, rewrites: r.Direction}
	c, known := k.modules[id]
	if !known {
		c = loadRewriter(r)
		k.modules[id] = c
	}
	if c != nil {
		k.complainAt(k.at(&r.Wasm, r), c.fix, "%s", c.message)
	}
}

// loadRewriter loads a module as it is going to be, but interpreted, which begins sooner.
func loadRewriter(r *Rewrite) *complaint {
	ctx, cancel := context.WithTimeout(context.Background(), loadTime)
	defer cancel()
	loaded, err := filter.NewRewriter(ctx, r.Wasm.Bytes, filter.RewriterConfig{
		Name: r.Title(), Config: r.Config, Bounds: wasm.Bounds{Memory: r.Memory, Interpret: true, Start: loadTime},
		FromServer: r.Direction == Down, Timeout: r.Timeout, Streams: 1, Counts: new(filter.StreamCounts),
	})
	if err != nil {
		return complain(mendModule(r.Memory, err, "docs/rewrite.md"), "%s: %v", r.Wasm.Path, err)
	}
	loaded.Close()
	return nil
}
