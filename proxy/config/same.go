package config

import (
	"bytes"
	"reflect"
	"slices"
)

// Same reports whether two listeners are equal in all of their keys. Where and how these were
// written does not matter.
func (ln *Listener) Same(o *Listener) bool {
	return ln.Name == o.Name &&
		slices.EqualFunc(ln.Bind, o.Bind, Bind.same) &&
		slices.Equal(ln.Allow, o.Allow) &&
		slices.Equal(ln.Deny, o.Deny) &&
		both(ln.AcceptProxy, o.AcceptProxy, (*AcceptProxy).same) &&
		ln.Transparent == o.Transparent &&
		slices.EqualFunc(ln.Routes, o.Routes, Route.same) &&
		ln.Upstream == o.Upstream &&
		both(ln.Mirror, o.Mirror, (*Mirror).same) &&
		both(ln.Filter, o.Filter, (*Filter).Same) &&
		both(ln.Rewrite, o.Rewrite, (*Rewrite).same) &&
		ln.RequireTLS == o.RequireTLS && ln.Silence == o.Silence &&
		ln.Postgres == o.Postgres &&
		ln.Limits.same(o.Limits) &&
		ln.Timeouts.same(o.Timeouts) &&
		ln.Connect == o.Connect &&
		both(ln.TLS, o.TLS, (*ListenerTLS).same) &&
		ln.SessionLog == o.SessionLog && ln.Lane == o.Lane &&
		both(ln.MetricsBy, o.MetricsBy, (*MetricsBy).same) &&
		ln.Socket.same(o.Socket)
}

// SameButEndpoints reports whether two upstreams are equal in all of their keys except
// endpoints. Where and how these were written does not matter.
func (u *Upstream) SameButEndpoints(o *Upstream) bool {
	return u.Name == o.Name &&
		u.Balance == o.Balance &&
		u.BalanceOn == o.BalanceOn &&
		both(u.Discover, o.Discover, (*Discover).Same) &&
		both(u.ZoneAware, o.ZoneAware, (*ZoneAware).same) &&
		both(u.HealthCheck, o.HealthCheck, (*HealthCheck).Same) &&
		both(u.OutlierDetection, o.OutlierDetection, (*OutlierDetection).same) &&
		both(u.CircuitBreaker, o.CircuitBreaker, (*CircuitBreaker).same) &&
		u.Retry.same(o.Retry) &&
		u.Queue.same(o.Queue) &&
		u.BackupWhen == o.BackupWhen &&
		u.SlowStart == o.SlowStart &&
		u.PanicBelow == o.PanicBelow &&
		both(u.Fallback, o.Fallback, (*Fallback).same) &&
		u.OnUnhealthy == o.OnUnhealthy &&
		u.OnRemoved == o.OnRemoved &&
		u.DrainTimeout == o.DrainTimeout &&
		u.SendProxy == o.SendProxy &&
		u.SourceAddress == o.SourceAddress &&
		u.Socket.Congestion == o.Socket.Congestion &&
		u.StartTLS == o.StartTLS &&
		both(u.TLS, o.TLS, (*UpstreamTLS).same)
}

// Same reports whether two session logs are equal in all of their keys.
func (l *SessionLog) Same(o *SessionLog) bool {
	a := *l
	a.Pos, a.At = o.Pos, o.At
	return slices.Equal(l.At, o.At) && reflect.DeepEqual(&a, o)
}

// SameEndpoints reports whether two upstreams list the same endpoints in the same order.
func (u *Upstream) SameEndpoints(o *Upstream) bool {
	return slices.EqualFunc(u.Endpoints, o.Endpoints, Endpoint.same)
}

// both compares two sections that may be absent.
func both[T any](a, b *T, same func(a, b *T) bool) bool {
	if a == nil || b == nil {
		return a == b
	}
	return same(a, b)
}

// Positions are not compared. Structs that can be compared as a whole are, with the position
// of the other one.

func (b Bind) same(o Bind) bool               { b.Pos = o.Pos; return b == o }
func (s Share) same(o Share) bool             { s.Pos = o.Pos; return s == o }
func (b Bandwidth) same(o Bandwidth) bool     { b.Pos = o.Pos; return b == o }
func (t Timeouts) same(o Timeouts) bool       { t.Pos = o.Pos; return t == o }
func (c Certificate) same(o Certificate) bool { c.Pos = o.Pos; return c == o }
func (s Socket) same(o Socket) bool           { s.Pos = o.Pos; return s == o }
func (e Endpoint) same(o Endpoint) bool       { e.Pos = o.Pos; return e == o }
func (r Retry) same(o Retry) bool             { r.Pos = o.Pos; return r == o }
func (q Queue) same(o Queue) bool             { q.Pos = o.Pos; return q == o }

func (l ListenerLimits) same(o ListenerLimits) bool {
	same := l.Bandwidth.same(o.Bandwidth) && l.BandwidthPerConnection.same(o.BandwidthPerConnection)
	l.Pos, l.Bandwidth, l.BandwidthPerConnection = o.Pos, o.Bandwidth, o.BandwidthPerConnection
	return same && l == o
}

func (z *ZoneAware) same(o *ZoneAware) bool       { a := *z; a.Pos = o.Pos; return a == *o }
func (t *UpstreamTLS) same(o *UpstreamTLS) bool   { a := *t; a.Pos = o.Pos; return a == *o }
func (f *DiscoverFile) same(o *DiscoverFile) bool { a := *f; a.Pos = o.Pos; return a == *o }

func (d *OutlierDetection) same(o *OutlierDetection) bool {
	a := *d
	a.Pos = o.Pos
	return a == *o
}

func (c *CircuitBreaker) same(o *CircuitBreaker) bool {
	a := *c
	a.Pos = o.Pos
	return a == *o
}

func (a *AcceptProxy) same(o *AcceptProxy) bool {
	return slices.Equal(a.Versions, o.Versions) && slices.Equal(a.From, o.From) && a.Timeout == o.Timeout
}

func (r Route) same(o Route) bool {
	return r.Match.same(&o.Match) && r.Upstream == o.Upstream && slices.EqualFunc(r.Split, o.Split, Share.same) &&
		both(r.Mirror, o.Mirror, (*Mirror).same) && both(r.Rewrite, o.Rewrite, (*Rewrite).same) && both(r.Filter, o.Filter, (*Filter).Same)
}

func (m *Match) same(o *Match) bool {
	return slices.Equal(m.SNI, o.SNI) && slices.Equal(m.ALPN, o.ALPN) && slices.Equal(m.Source, o.Source) && m.Port == o.Port &&
		slices.Equal(m.Protocol, o.Protocol) && slices.Equal(m.Host, o.Host) && slices.Equal(m.Path, o.Path) &&
		slices.Equal(m.User, o.User) && slices.Equal(m.Database, o.Database) &&
		slices.EqualFunc(m.Bytes, o.Bytes, ByteMatch.same) && slices.EqualFunc(m.TLV, o.TLV, TLVMatch.same)
}

func (b ByteMatch) same(o ByteMatch) bool {
	b.Pos = o.Pos
	return b == o
}

func (t TLVMatch) same(o TLVMatch) bool {
	t.Pos = o.Pos
	return t == o
}

func (t *ListenerTLS) same(o *ListenerTLS) bool {
	return slices.EqualFunc(t.Certificates, o.Certificates, Certificate.same) && t.ClientCA == o.ClientCA &&
		t.MinVersion == o.MinVersion && slices.Equal(t.ALPN, o.ALPN)
}

// Same reports whether endpoints are discovered from the same source.
func (d *Discover) Same(o *Discover) bool {
	return both(d.DNS, o.DNS, (*DiscoverDNS).same) && both(d.File, o.File, (*DiscoverFile).same)
}

// SameOrigin reports whether two discoveries, each of which may be nil, look for the same: one file, or one name,
// type and port, whichever servers are asked for it.
func (d *Discover) SameOrigin(o *Discover) bool {
	return d != nil && o != nil && both(d.DNS, o.DNS, (*DiscoverDNS).sameOrigin) && both(d.File, o.File, (*DiscoverFile).same)
}

func (d *DiscoverDNS) sameOrigin(o *DiscoverDNS) bool {
	return d.Name == o.Name && d.Type == o.Type && d.Port == o.Port
}

func (d *DiscoverDNS) same(o *DiscoverDNS) bool {
	return d.sameOrigin(o) && slices.Equal(d.Servers, o.Servers) && d.MinTTL == o.MinTTL && d.MaxTTL == o.MaxTTL
}

// Same reports whether two health checks are equal.
func (h *HealthCheck) Same(o *HealthCheck) bool {
	return h.Type == o.Type && h.Port == o.Port &&
		h.Interval == o.Interval && h.FastInterval == o.FastInterval && h.Timeout == o.Timeout && h.Jitter == o.Jitter &&
		h.Rise == o.Rise && h.Fall == o.Fall &&
		h.HTTP.same(&o.HTTP) && h.Send.Value == o.Send.Value && h.Expect.Value == o.Expect.Value && h.Standby.Value == o.Standby.Value &&
		h.TLS == o.TLS && h.SNI == o.SNI
}

func (c *HTTPCheck) same(o *HTTPCheck) bool {
	return c.Path == o.Path && c.Host == o.Host && slices.Equal(c.Status, o.Status) && c.Body.Value == o.Body.Value
}

func (f *Fallback) same(o *Fallback) bool {
	return f.Upstream == o.Upstream && f.Respond.Path == o.Respond.Path && bytes.Equal(f.Respond.Bytes, o.Respond.Bytes)
}
