package server

import (
	"cmp"
	"slices"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// maxWhyEndpoints is how many endpoints are listed.
const maxWhyEndpoints = 100

// A whyGroup adds up the sessions of an endpoint, or of an upstream.
type whyGroup struct {
	upstream, endpoint, name string
	sessions                 int64
	verdicts                 [verdict.Kinds]int64
	times                    [verdict.Kinds]float64 // in seconds
}

func (g *whyGroup) add(v *verdict.Verdict, seconds float64) {
	g.sessions++
	g.verdicts[v.Kind]++
	for k, share := range v.Shares {
		g.times[k] += share * seconds
	}
}

// whyGroups are the groups of sessions, by upstream and address of the endpoint; that of an upstream has no address.
type whyGroups map[[2]string]*whyGroup

func (w whyGroups) add(one *worker.Session, v *verdict.Verdict, seconds float64) {
	for _, of := range [...]whyGroup{{upstream: one.Upstream, endpoint: one.Endpoint, name: one.EndpointName}, {upstream: one.Upstream}} {
		key := [2]string{of.upstream, of.endpoint}
		g := w[key]
		if g == nil {
			g = &of
			w[key] = g
		}
		g.add(v, seconds)
	}
}

// list returns the endpoints, or the upstreams, of which the most time has the verdict first.
func (w whyGroups) list(kind verdict.Kind, endpoints bool) (list []*whyGroup) {
	for _, g := range w {
		if endpoints && g.endpoint != "" || !endpoints && g.endpoint == "" && g.upstream != "" {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b *whyGroup) int {
		return cmp.Or(cmp.Compare(b.times[kind], a.times[kind]), cmp.Compare(a.upstream, b.upstream), cmp.Compare(a.endpoint, b.endpoint))
	})
	return list
}

// status describes a group, of a verdict that has a time in all groups.
func (g *whyGroup) status(kind verdict.Kind, all float64) admin.EndpointWhy {
	own := g.times
	total := 0.0
	for _, t := range own {
		total += t
	}
	for k := range own {
		own[k] /= max(total, 1e-9)
	}
	return admin.EndpointWhy{
		Upstream: g.upstream, Endpoint: g.endpoint, Name: g.name, Sessions: g.sessions, Limited: g.verdicts[kind],
		Share: thousandths(g.times[kind] / max(all, 1e-9)), Shares: sharesOf(&own),
	}
}

// report adds the endpoints to a result, and the one, or else the upstream, that has most of the time of a verdict
// on endpoints. times are those of all sessions.
func (w whyGroups) report(to *admin.Why, kind verdict.Kind, all float64) {
	endpoints := w.list(kind, true)
	to.Endpoints = make([]admin.EndpointWhy, 0, min(len(endpoints), maxWhyEndpoints))
	for _, g := range endpoints[:min(len(endpoints), maxWhyEndpoints)] {
		to.Endpoints = append(to.Endpoints, g.status(kind, all))
	}
	if kind != verdict.Endpoint && kind != verdict.EndpointNetwork {
		return
	}
	for _, list := range [][]*whyGroup{endpoints, w.list(kind, false)} {
		if len(list) > 0 && list[0].times[kind] > all/2 {
			most := list[0].status(kind, all)
			to.Most = &most
			return
		}
	}
}
