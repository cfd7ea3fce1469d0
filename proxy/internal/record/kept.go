package record

import (
	"net/netip"
	"time"

	"github.com/penstock/penstock/proxy/internal/source"
)

// A Kept keeps a [Record] while its session goes on. It is small, because each idle session has one. It lacks the
// results, and the names of the configuration, which the session's listener and endpoint have. Properties that
// only some sessions have are in a [Rest].
type Kept struct {
	id                       ID
	accepted                 int64
	at                       [moments]moment
	queued, paused           moment
	client, local, endpoint  address
	waits, retries, failures uint16
	flags, sampler           uint8
	rest                     *Rest // owned; nil if there is nothing to keep in it
}

const (
	flagRedispatched = 1 << iota
	flagTLS
	flagAdopted
)

// The indexes of the times that are kept.
const (
	atBegun = iota
	atHeader
	atPreread
	atRouted
	atPicked
	atConnecting
	atJoined
	atClientFirst
	atEndpointFirst
	atHalfClosed
	moments
)

func (r *Record) times() [moments]*int64 {
	return [...]*int64{
		&r.Begun, &r.Header, &r.Preread, &r.Routed, &r.Picked, &r.Connecting, &r.Joined, &r.ClientFirst, &r.EndpointFirst, &r.HalfClosed,
	}
}

// Pack keeps r. It takes spare if it needs a Rest, and reports whether it has taken spare.
func (k *Kept) Pack(r *Record, spare *Rest) (used bool) {
	*k = Kept{id: r.ID, sampler: r.Sampler, accepted: r.Accepted, queued: momentOf(r.Queued), paused: momentOf(r.Paused), waits: r.Waits, retries: r.Retries, failures: r.NumFailures}
	for i, t := range r.times() {
		k.set(i, *t)
	}
	if r.Redispatched {
		k.flags |= flagRedispatched
	}
	if r.TLS {
		k.flags |= flagTLS
	}
	if r.Adopted {
		k.flags |= flagAdopted
	}
	a, b, c := k.client.set(r.Client.AddrPort()), k.local.set(r.Local), k.endpoint.set(r.EndpointAddress)
	if _, unix := r.Client.Credentials(); a && b && c && !unix && !r.hasRest() {
		return false
	}
	*spare = r.Rest
	k.rest = spare
	return true
}

// hasRest reports whether r has something that only some sessions have, apart from unusual addresses.
func (r *Record) hasRest() bool {
	return r.Source.IsValid() || r.EndpointPath != "" || r.ServerName != "" || r.Protocols != "" || r.Tags != "" || r.User != "" || r.Protocol != "" || r.NumFailures > 0 || r.Before > 0
}

// Unpack sets r to all that is kept.
func (k *Kept) Unpack(r *Record) {
	*r = Record{
		ID: k.id, Sampler: k.sampler, Accepted: k.accepted, Queued: k.queued.duration(), Paused: k.paused.duration(), Waits: k.waits, Retries: k.retries, NumFailures: k.failures,
		Redispatched: k.flags&flagRedispatched != 0, TLS: k.flags&flagTLS != 0, Adopted: k.flags&flagAdopted != 0,
	}
	for i, t := range r.times() {
		if m := k.at[i]; m != 0 {
			*t = k.accepted + int64((m - 1).duration())
		}
	}
	if k.rest != nil {
		r.Rest = *k.rest
		return
	}
	r.Client, r.Local, r.EndpointAddress = source.TCP(k.client.get()), k.local.get(), k.endpoint.get()
}

// Rest takes the Rest out of k, so that another Kept can use it; nil: there is none.
func (k *Kept) Rest() *Rest {
	rest := k.rest
	k.rest = nil
	return rest
}

// ID returns [Record.ID].
func (k *Kept) ID() ID { return k.id }

// Addresses returns [Record.From] and [Record.EndpointName].
func (k *Kept) Addresses() (client source.Source, endpoint string) {
	var r Record
	k.Unpack(&r)
	return r.From(), r.EndpointName()
}

// Joined returns [Record.Joined].
func (k *Kept) Joined() int64 {
	if m := k.at[atJoined]; m != 0 {
		return k.accepted + int64((m - 1).duration())
	}
	return 0
}

// FirstByte notes the first byte of the client, or of the endpoint.
func (k *Kept) FirstByte(client bool, now int64) {
	if client {
		k.set(atClientFirst, now)
	} else {
		k.set(atEndpointFirst, now)
	}
}

// HalfClosed notes that the first end of file was passed on.
func (k *Kept) HalfClosed(now int64) { k.set(atHalfClosed, now) }

func (k *Kept) set(i int, at int64) {
	if at != 0 {
		k.at[i] = momentOf(time.Duration(at-k.accepted)) + 1
	}
}

// A moment is a duration. It has microseconds up to half an hour, and milliseconds beyond. The longest moment is
// 24 days.
type moment uint32

const (
	coarse    moment = 1 << 31
	maxMoment        = moment(1<<32 - 2) // the caller adds 1, and uses 0 for "never"
)

func momentOf(d time.Duration) moment {
	switch us := max(d, 0).Microseconds(); {
	case us < int64(coarse):
		return moment(us)
	default:
		return moment(min(uint64(coarse)+uint64(us/1000), uint64(maxMoment)))
	}
}

func (m moment) duration() time.Duration {
	if m < coarse {
		return time.Duration(m) * time.Microsecond
	}
	return time.Duration(m-coarse) * time.Millisecond
}

// An address is a TCP address without a zone.
type address struct {
	ip   [16]byte // IPv4 is mapped into IPv6
	port uint16
	kind uint8
}

const (
	noAddress = iota
	address4
	address6
)

// set keeps an address, and reports whether all of it is kept.
func (a *address) set(at netip.AddrPort) bool {
	*a = address{port: at.Port()}
	ip := at.Addr()
	if !ip.IsValid() {
		return true
	}
	a.ip, a.kind = ip.As16(), address6
	if ip.Is4() {
		a.kind = address4
	}
	return ip.Zone() == ""
}

func (a *address) get() netip.AddrPort {
	if a.kind == noAddress {
		return netip.AddrPort{}
	}
	ip := netip.AddrFrom16(a.ip)
	if a.kind == address4 {
		ip = ip.Unmap()
	}
	return netip.AddrPortFrom(ip, a.port)
}
