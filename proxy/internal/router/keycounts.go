package router

import (
	"sync/atomic"

	"github.com/penstock/penstock/proxy/internal/clientkey"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A KeyCount counts the sessions with one value of a property of clients.
type KeyCount struct {
	sessions atomic.Int64 // that have begun
	meter    meter
}

// Sessions returns how many have begun.
func (c *KeyCount) Sessions() int64 { return c.sessions.Load() }

// Bytes returns the bytes of those that have ended, see [worker.Group.Metered].
func (c *KeyCount) Bytes() worker.Bytes { return c.meter.bytes() }

// KeyCounts count the sessions of a listener by a property of their clients, for some values of it and for all others
// together. The number of counts is that of the values and two more, whatever clients send.
type KeyCounts struct {
	key            clientkey.Key
	of             map[string]*KeyCount // not changed
	other, unknown *KeyCount
}

// NewKeyCounts returns the counts of some values. Those that before has counted by the same property go on; before may
// be nil.
func NewKeyCounts(key clientkey.Key, values []string, before *KeyCounts) *KeyCounts {
	c := &KeyCounts{key: key, of: make(map[string]*KeyCount, len(values)), other: new(KeyCount), unknown: new(KeyCount)}
	same := before != nil && before.key == key
	if same {
		c.other, c.unknown = before.other, before.unknown
	}
	for _, v := range values {
		if same && before.of[v] != nil {
			c.of[v] = before.of[v]
		} else {
			c.of[v] = new(KeyCount)
		}
	}
	return c
}

// Of returns the count of one of the values.
func (c *KeyCounts) Of(value string) *KeyCount { return c.of[value] }

// Other returns the count of sessions with another value than these, Unknown that of sessions without one.
func (c *KeyCounts) Other() *KeyCount { return c.other }

// Unknown is described at [KeyCounts.Other].
func (c *KeyCounts) Unknown() *KeyCount { return c.unknown }

// count counts a session that begins; nil: it is not counted.
func (s *Search) count() *KeyCount {
	by := s.listener.cfg.ByKey
	if by == nil {
		return nil
	}
	value := s.valueOf(by.key)
	c := by.of[value]
	switch {
	case value == "":
		c = by.unknown
	case c == nil:
		c = by.other
	}
	c.sessions.Add(1)
	return c
}
