package server

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/filter"
	"github.com/penstock/penstock/proxy/internal/mask"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/relay"
)

// rewrite makes the rewriting of a route; nil: there is none.
func (l *listener) rewrite(cfg *config.Rewrite) (*router.Rewrite, error) {
	switch {
	case !cfg.Active():
		return nil, nil
	case cfg.Module():
		return &router.Rewrite{Side: sideOf(cfg), Module: l.moduleOf(cfg), Hold: cfg.Hold}, nil
	}
	var kinds []mask.Kind
	for _, name := range cfg.Mask {
		k, err := mask.ParseKind(name)
		if err != nil {
			return nil, fmt.Errorf("rewrite: %w", err)
		}
		kinds = append(kinds, k)
	}
	masks, err := mask.New(kinds, cfg.Patterns)
	if err != nil {
		return nil, fmt.Errorf("rewrite: %w", err)
	}
	framing, err := mask.ParseFraming(cfg.Framing)
	if err != nil {
		return nil, fmt.Errorf("rewrite: %w", err)
	}
	return &router.Rewrite{Side: sideOf(cfg), Masks: masks.Framed(framing, cfg.Direction != config.Down), Hold: holdOf(cfg.Hold, framing)}, nil
}

// holdOf is for how long bytes are held back. With a framing they are of a text of which the end is to come, and a part is of no use to a client.
func holdOf(hold time.Duration, framing mask.Framing) time.Duration {
	if framing != mask.Bytes {
		return -1
	}
	return hold
}

// sideOf is the side that sends what is rewritten.
func sideOf(cfg *config.Rewrite) relay.Side {
	if cfg.Direction == config.Down {
		return relay.SideB
	}
	return relay.SideA
}

// rewriteStatus is the status of a listener's rewritten sessions, nil if it has none and had none. every has kinds that did not
// occur as well.
func (l *listener) rewriteStatus(every bool) *admin.Rewrites {
	counts := l.state.Rewrites()
	t, m := counts.Masks.Totals(), counts.Modules.Totals()
	r := &admin.Rewrites{
		Sessions: counts.Sessions.Load(), OffLoop: counts.OffLoop.Load(),
		Encrypted: t.Encrypted + m.Reset[filter.FailedEncrypted], Unframed: t.Unframed,
		Bytes: t.Bytes + m.In, BytesOut: t.Bytes + m.Out, Masked: make(map[string]int64), Late: t.Late,
	}
	if r.Sessions == 0 && r.OffLoop == 0 && !l.cfg.Rewrites() {
		return nil
	}
	for k, n := range t.Matches {
		if n > 0 || every {
			r.Masked[mask.Kind(k).String()] = n
		}
	}
	l.moduleStatus(r, &m, every)
	return r
}
