package server

import (
	"cmp"
	"context"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
)

const (
	// maxSources is how many sources a list is chosen from.
	maxSources = 1 << 18
	// rateWindow and refusalWindow are the times of which arrivals and refusals count.
	rateWindow, refusalWindow = 10 * time.Second, time.Minute
)

// sources returns the sources with the most of something. Connections are counted as they are listed, and what came is what the loops
// remember: a connection costs nothing here but a place in their rings.
func (s *sessionTable) sources(ctx context.Context, q admin.SourceQuery) (admin.Sources, error) {
	t := &sourceTable{v4: cmp.Or(q.Prefix4, 32), v6: cmp.Or(q.Prefix6, 64), counts: make(map[source.Rule]*admin.Source)}
	for one := range s.everySession(ctx, &worker.Query{Brief: true}) {
		if of := t.of(one.Source, false); of != nil {
			of.Connections++
			of.Bytes += one.ClientToEndpoint.All() + one.EndpointToClient.All()
		}
	}
	for a := range s.group.Arrivals(ctx, rateWindow, false) {
		if of := t.of(a.Source, a.Unix); of != nil {
			of.PerSecond += a.Share
		}
	}
	for a := range s.group.Arrivals(ctx, refusalWindow, true) {
		if of := t.of(a.Source, a.Unix); of != nil {
			of.Refused++
		}
	}
	return t.top(cmp.Or(q.By, admin.SourceOrders[0]), cmp.Or(q.Top, admin.DefaultTop)), ctx.Err()
}

// A sourceTable adds up by sources.
type sourceTable struct {
	v4, v6 int // bits
	counts map[source.Rule]*admin.Source
	beyond int64
}

// of returns the counts of a client's source; nil: there is no room for another one.
func (t *sourceTable) of(from source.Source, unix bool) *admin.Source {
	var rule source.Rule // of those that are not known
	if peer, ok := from.Credentials(); ok {
		rule = source.UnixUser(peer.UID)
	} else if at := from.AddrPort().Addr(); at.IsValid() {
		bits := t.v6
		if at.Is4() {
			bits = t.v4
		}
		rule = source.Prefix(netip.PrefixFrom(at.WithZone(""), bits))
	} else if unix {
		rule = source.UnixClients()
	}
	of := t.counts[rule]
	if of == nil {
		if len(t.counts) >= maxSources {
			t.beyond++
			return nil
		}
		of = new(admin.Source)
		t.counts[rule] = of
	}
	return of
}

// top returns those with the most of something.
func (t *sourceTable) top(by string, most int) admin.Sources {
	sum := admin.Sources{Sources: make([]admin.Source, 0, len(t.counts)), Known: len(t.counts), Beyond: t.beyond}
	for rule, of := range t.counts {
		of.Source, of.PerSecond = rule.Text(), math.Round(of.PerSecond*100)/100
		sum.Sources = append(sum.Sources, *of)
	}
	number := map[string]func(*admin.Source) float64{
		"connections": func(s *admin.Source) float64 { return float64(s.Connections) },
		"rate":        func(s *admin.Source) float64 { return s.PerSecond },
		"refusals":    func(s *admin.Source) float64 { return float64(s.Refused) },
		"bytes":       func(s *admin.Source) float64 { return float64(s.Bytes) },
	}[by]
	slices.SortFunc(sum.Sources, func(a, b admin.Source) int {
		return cmp.Or(cmp.Compare(number(&b), number(&a)), cmp.Compare(b.Connections, a.Connections), cmp.Compare(a.Source, b.Source))
	})
	sum.Sources = slices.Clone(sum.Sources[:min(len(sum.Sources), most)])
	return sum
}
