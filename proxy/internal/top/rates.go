package top

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/display"
)

// A rate is a number for each second; negative: unknown.
type rate float64

const unknown rate = -1

// between is the rate of a counter. It is unknown without a time, or if the counter has fallen.
func between(before, now int64, d time.Duration) rate {
	if d <= 0 || now < before {
		return unknown
	}
	return rate(float64(now-before) / d.Seconds())
}

// count writes a rate of things: 0, 0.3, 12.5, 1234, 56.7k.
func (r rate) count() string {
	switch {
	case r < 0:
		return "-"
	case r == 0:
		return "0"
	case r < 99.95:
		return fmt.Sprintf("%.1f", float64(r))
	case r < 9999.5:
		return fmt.Sprintf("%.0f", float64(r))
	case r < 999_950:
		return fmt.Sprintf("%.1fk", float64(r)/1e3)
	}
	return fmt.Sprintf("%.1fM", float64(r)/1e6)
}

// bytes writes a rate of bytes.
func (r rate) bytes() string {
	switch {
	case r < 0:
		return "-"
	case r == 0:
		return "0"
	}
	return display.Bytes(int64(r + 0.5))
}

// flow is the bytes of something, for each second: in from clients, out to them.
type flow struct{ in, out rate }

func flowOf(before, now *admin.Bytes, d time.Duration) flow {
	if before == nil {
		return flow{unknown, unknown}
	}
	return flow{
		between(before.ClientToEndpoint.All(), now.ClientToEndpoint.All(), d),
		between(before.EndpointToClient.All(), now.EndpointToClient.All(), d),
	}
}

// earlier finds things of the look before, by their names.
type earlier struct {
	time      time.Duration // between the looks; 0: there was none
	status    *admin.Status // nil: likewise
	listeners map[string]*admin.Listener
	upstreams map[string]*admin.Upstream
	endpoints map[endpointKey]*admin.Endpoint
}

// An endpointKey is an endpoint of an upstream. One that was removed and one in its place have the same name.
type endpointKey struct {
	upstream, name string
	removed        bool
}

func keyOf(upstream string, e *admin.Endpoint) endpointKey {
	return endpointKey{upstream, e.Name, e.State == admin.Removed}
}

func earlierOf(before, now *Look) earlier {
	e := earlier{
		listeners: make(map[string]*admin.Listener), upstreams: make(map[string]*admin.Upstream), endpoints: make(map[endpointKey]*admin.Endpoint),
	}
	if before == nil || !before.same(now) {
		return e
	}
	e.time, e.status = now.At.Sub(before.At), &before.Status
	for i := range e.status.Listeners {
		l := &e.status.Listeners[i]
		e.listeners[l.Name] = l
	}
	for i := range e.status.Upstreams {
		u := &e.status.Upstreams[i]
		e.upstreams[u.Name] = u
		for j := range u.Endpoints {
			e.endpoints[keyOf(u.Name, &u.Endpoints[j])] = &u.Endpoints[j]
		}
	}
	return e
}

// rate is that of a counter, by its value in the look before; nil: it was not there.
func (e *earlier) rate(before *int64, now int64) rate {
	if before == nil {
		return unknown
	}
	return between(*before, now, e.time)
}

// counter is one of a thing that may not have been there.
func counter[T any](thing *T, of func(*T) int64) *int64 {
	if thing == nil {
		return nil
	}
	n := of(thing)
	return &n
}

// bytesOf are those of a thing that may not have been there.
func bytesOf[T any](thing *T, of func(*T) *admin.Bytes) *admin.Bytes {
	if thing == nil {
		return nil
	}
	return of(thing)
}
