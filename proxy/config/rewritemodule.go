package config

import (
	"context"
	"crypto/sha256"

	"github.com/penstock/penstock/proxy/internal/filter"
	"github.com/penstock/penstock/proxy/internal/wasm"
)

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
