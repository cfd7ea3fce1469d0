package server

import (
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/clientkey"
	"github.com/penstock/penstock/proxy/internal/metrics"
	"github.com/penstock/penstock/proxy/internal/router"
)

// balanceOn is the property that an upstream's policy hashes, if that is not the source.
func balanceOn(c *config.Upstream) string {
	if hashKey(c) == (clientkey.Key{}) {
		return ""
	}
	return c.BalanceOn
}

// keyCounts returns the counts by a property of a listener's clients; nil: there are none. Values that the listener
// had before go on from there. before is nil if there was none.
func keyCounts(cfg *config.MetricsBy, before *listener) *router.KeyCounts {
	if cfg == nil {
		return nil
	}
	key, _ := clientkey.Parse(cfg.Key) // the loader has looked
	var counts *router.KeyCounts
	if before != nil {
		counts = before.byKey
	}
	return router.NewKeyCounts(key, cfg.Values, counts)
}

// measureKeys returns the sessions and bytes of a listener by a property of their clients.
func (l *listener) measureKeys(running *router.Running) (by string, list []metrics.Keyed) {
	if l.byKey == nil {
		return "", nil
	}
	add := func(value string, c *router.KeyCount) {
		list = append(list, metrics.Keyed{Value: value, Sessions: c.Sessions(), Bytes: bytesOf(c.Bytes(), running.Keys[c])})
	}
	for _, value := range l.cfg.MetricsBy.Values {
		add(value, l.byKey.Of(value))
	}
	add(config.OtherValue, l.byKey.Other())
	add(config.UnknownValue, l.byKey.Unknown())
	return l.cfg.MetricsBy.Key, list
}
