package core

import (
	"net/netip"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/upstream"
	"github.com/penstock/penstock/relay"
)

// SearchOf returns a [Service.NewSearch] for the targets of a group.
func SearchOf(g *upstream.Group) func() Search {
	return func() Search { return &targets{group: g} }
}

// targets is an [upstream.Search] as a [Search].
type targets struct {
	upstream.Search
	group *upstream.Group
}

func (t *targets) Begin(*Client, int64) { t.Search.Begin(t.group) }

func (t *targets) Next(now int64) Step {
	s := t.Search.Next(now)
	switch s.Do {
	case upstream.Connect:
		return Step{
			Do: Connect, Address: loop.Address(s.Address), Source: t.group.Source(),
			Timeout: s.Timeout, MaybeSelf: s.MaybeSelf,
		}
	case upstream.Resolve:
		return Step{Do: Resolve, Host: s.Host, Resolver: t.group, Timeout: s.Timeout}
	default:
		return Step{Do: GiveUp}
	}
}

func (t *targets) Resolved(ips []netip.Addr, err error) { t.Search.Resolved(ips, err, false) }

func (t *targets) Failed(err error, now int64) { t.Search.Failed(err, now, false) }

func (t *targets) Preface(b []byte) []byte { return b }

func (t *targets) Reached(int64) (*relay.Limits, error) {
	t.Search.Reached()
	return nil, nil
}

func (t *targets) Close() {}
