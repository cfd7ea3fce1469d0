package server

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/monitor"
)

// logHealth logs a transition, or one line for many transitions of an upstream. A transition
// that was held back is logged with its own time. While a subject flaps, the line is a
// warning, whatever the last state is.
func (um *upstreamManager) logHealth(t health.Transition) {
	level := slog.LevelInfo
	if t.Bad || t.Suppressed > 0 {
		level = slog.LevelWarn
	}
	_, of, _ := strings.Cut(t.Subject, " ")
	upstream, endpoint, _ := strings.Cut(of, "/") // no slash: it is about the upstream, whose name has none
	attrs, name := []any{"upstream", upstream}, upstream
	if endpoint != "" {
		attrs, name = append(attrs, "endpoint", endpoint), endpoint
	}
	attrs = append(attrs, "state", t.State)
	if t.Cause != "" {
		attrs = append(attrs, "cause", t.Cause)
	}
	if t.Suppressed > 0 {
		attrs = append(attrs, "flapping", true, "suppressed", t.Suppressed)
	}
	now := um.now()
	if now-t.Time > int64(time.Second) {
		attrs = append(attrs, "happened", um.wall(t.Time).Format(time.RFC3339Nano))
	}
	um.lines.Note(now, &monitor.Line{
		Upstream: upstream, Level: level, Message: t.Kind.String(), Kind: t.State, Name: name, Count: int64(1 + t.Suppressed), Attrs: attrs,
	})
}

// The interval between rounds is answersEvery, or answer_within if that is shorter, but at least
// answersOften. While there is nothing to judge it grows to answersRarely. It is also long
// enough for the loops to spend at most 1/answersShare of their time on rounds.
const (
	answersEvery  = 500 * time.Millisecond
	answersOften  = 50 * time.Millisecond
	answersRarely = 2 * time.Second
	answersShare  = 50
)

func (um *upstreamManager) watchAnswers(ctx context.Context) {
	wait, last := answersEvery, um.now()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		spent := um.group.Watch()
		now := um.now()
		late := time.Duration(now-last) > 2*wait+answersEvery
		every, busy := um.answersRound(now, late)
		if wait = min(2*wait, answersRarely); busy {
			wait = every
		}
		wait, last = max(wait, answersShare*spent), now
		timer.Reset(wait)
	}
}

// answersRound judges all endpoints once. busy reports whether there is anything to judge; if so, every is the time
// until the next round.
func (um *upstreamManager) answersRound(now int64, late bool) (every time.Duration, busy bool) {
	um.mu.Lock()
	defer um.mu.Unlock()
	every = answersEvery
	for _, u := range um.upstreams {
		cfg := &health.UnansweredConfig{BySource: bySource(u.cfg)}
		if o := u.cfg.OutlierDetection; o != nil {
			cfg.After, cfg.Within = o.Unanswered, o.AnswerWithin
		}
		if cfg.Within > 0 {
			every = max(min(every, cfg.Within), answersOften)
		}
		u.watched = u.watched[:0]
		for _, m := range u.order {
			u.watched = append(u.watched, health.Watched{Answers: m.endpoint.Answers(), Judge: m.monitor, Probe: m.endOf(u, um.circles), Away: m.endpoint.Away()})
		}
		busy = u.answers.Round(now, cfg, u.watched, late) || busy
	}
	return every, busy
}

// An ending is a [health.Prober] that finds out whether an endpoint closes a connection.
type ending struct {
	spec    discovery.Endpoint
	proxy   int        // version of the PROXY header; 0: none
	source  netip.Addr // local address, if valid
	connect func(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error)
}

func (m *member) endOf(u *upstream, c *circles) *ending {
	if is := m.ending; is != nil && is.proxy == u.cfg.SendProxy && is.source == u.cfg.SourceAddress {
		return is
	}
	m.ending = &ending{spec: m.spec.Endpoint, proxy: u.cfg.SendProxy, source: u.cfg.SourceAddress, connect: c.connect(u.cfg.Name)}
	return m.ending
}

// Probe implements [health.Prober].
func (e *ending) Probe(ctx context.Context) error {
	cfg := &health.ProbeConfig{Address: e.spec.Address, End: true, Source: e.source, Connect: e.connect}
	if e.proxy > 0 {
		cfg.Preface = ownHeader(e.proxy)
	}
	p, err := health.NewProbe(cfg)
	if err != nil {
		return err
	}
	return p.Probe(ctx)
}
