package sessionlog

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/relay"
)

// A Kind says at which moment of a session a line is written.
type Kind uint8

const (
	// Start: the client was joined to an endpoint.
	Start Kind = iota
	// Progress: the session continues, and another interval is over.
	Progress
	// End: the session has ended, or the client left or was refused before.
	End
)

var kindNames = [...]string{"start", "progress", "end"}

// String returns the kind's name in a line.
func (k Kind) String() string { return kindNames[k] }

// MaxEvent limits the size of an event in a ring, in bytes. Names that do not fit are cut; names from the network are
// cut first.
const MaxEvent = 640 - 8

// Limits of names in an event, in bytes. Longer names from a configuration are cut too, and marked.
const (
	maxName  = 64
	maxPath  = 80
	maxError = 96
	maxZone  = 15 // of an interface's name (IFNAMSIZ of linux/if.h)
)

// appendEvent appends a record's event to b. An event has at most MaxEvent bytes.
func appendEvent(b []byte, k Kind, now int64, r *record.Record) []byte {
	b = append(b, byte(k), byte(r.Outcome), flagsOf(r))
	b = append(b, r.ID[:]...)
	for _, n := range [...]int64{
		now, r.Accepted, r.Begun, r.Header, r.Preread, r.Routed, int64(r.Queued), int64(r.Paused), r.Picked, r.Connecting, r.Joined,
		r.ClientFirst, r.EndpointFirst, r.HalfClosed, r.Ended, int64(r.Loop), int64(r.Waits), int64(r.Before), int64(r.Retries), int64(r.NumFailures),
		r.Result.AToB.Spliced, r.Result.AToB.Copied, r.Result.AToB.Carried, r.Result.AToB.Lost, r.Result.BToA.Spliced, r.Result.BToA.Copied, r.Result.BToA.Carried, r.Result.BToA.Lost,
		int64(r.Result.Reason), int64(r.Result.Culprit), int64(r.Result.First),
		r.Counts.Process, r.Counts.Listener, r.Counts.Upstream, r.Counts.Endpoint,
		int64(r.ClientLeg.RTT), int64(r.ClientLeg.MinRTT), int64(r.ClientLeg.Retransmitted),
		int64(r.EndpointLeg.RTT), int64(r.EndpointLeg.MinRTT), int64(r.EndpointLeg.Retransmitted), int64(lastCause(r)),
	} {
		b = binary.AppendVarint(b, n)
	}
	cred, _ := r.Client.Credentials()
	b = binary.AppendUvarint(binary.AppendUvarint(binary.AppendVarint(b, int64(cred.PID)), uint64(cred.UID)), uint64(cred.GID))
	for _, at := range [...]netip.AddrPort{r.Client.AddrPort(), r.Source, r.Destination, r.Local, r.EndpointAddress} {
		b = appendAddress(b, at)
	}
	texts := [...]struct {
		text string
		most int
	}{
		{r.Listener, maxName},
		{r.Upstream, maxName},
		{r.Endpoint, maxName},
		{r.Refusal, maxName},
		{r.Why, maxName},
		{r.Protocol, maxName},
		{r.Verdict, maxName},
		{r.Protocols, record.MaxProtocols},
		{errorText(r), maxError},
		{r.EndpointPath, maxPath},
		{r.ServerName, record.MaxServerName},
		{r.Tags, record.MaxTags},
		{r.User, record.MaxLogin},
		{r.Database, record.MaxLogin},
		{r.Host, record.MaxHost},
		{r.Path, record.MaxPath},
	}
	for i, s := range texts { // the length byte of each text always fits
		b = appendText(b, s.text, min(s.most, MaxEvent-len(b)-(len(texts)-i)))
	}
	return b
}

const (
	flagTLS = 1 << iota
	flagRedispatched
	flagClientLeg
	flagEndpointLeg
	flagUnix
	flagOperator
	flagAdopted
)

func flagsOf(r *record.Record) (f byte) {
	_, unix := r.Client.Credentials()
	for i, set := range [...]bool{r.TLS, r.Redispatched, r.ClientLeg.Known, r.EndpointLeg.Known, unix, errors.Is(r.Err, record.ErrOperator), r.Adopted} {
		if set {
			f |= 1 << i
		}
	}
	return f
}

// lastCause returns the cause of the last failed attempt that the record describes.
func lastCause(r *record.Record) record.Cause {
	if r.NumFailures == 0 {
		return record.CauseOther
	}
	return r.Failures[min(int(r.NumFailures), len(r.Failures))-1].Cause
}

func errorText(r *record.Record) string {
	if r.Err == nil {
		return ""
	}
	if unverified, ok := errors.AsType[*tls.CertificateVerificationError](r.Err); ok {
		return unverified.Err.Error() // the text before it repeats other fields, and the reason after them would be cut off
	}
	return r.Err.Error()
}

// appendText appends the length of a text and at most most of its bytes.
func appendText(b []byte, s string, most int) []byte {
	switch {
	case most <= len(record.Cut):
		s = ""
	default:
		if len(s) > most {
			b = append(b, byte(most))
			b = append(b, s[:most-len(record.Cut)]...)
			return append(b, record.Cut...)
		}
	}
	return append(append(b, byte(len(s))), s...)
}

func appendAddress(b []byte, at netip.AddrPort) []byte {
	if ip := at.Addr(); len(ip.Zone()) > maxZone {
		at = netip.AddrPortFrom(ip.WithZone(ip.Zone()[:maxZone]), at.Port())
	}
	b = append(b, 0)
	if n := len(b); at.IsValid() {
		b, _ = at.AppendBinary(b) // never fails
		b[n-1] = byte(len(b) - n)
	}
	return b
}

// An Event is the content of a line.
type Event struct {
	Kind Kind
	record.Record

	now   int64 // loops' clock when the event was made
	cause record.Cause
	error string
}

// A reader reads an event. If bytes are missing, it reads zeros from there on.
type reader struct {
	b   []byte
	all string // ends with b; texts are substrings of it
	bad bool
}

func (d *reader) bytes(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.bad, d.b = true, nil
		return make([]byte, min(max(n, 0), 16))
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *reader) byte() byte { return d.bytes(1)[0] }

func (d *reader) int() int64 {
	n, size := binary.Varint(d.b)
	if size <= 0 {
		d.bad, size, n = true, len(d.b), 0
	}
	d.b = d.b[size:]
	return n
}

func (d *reader) uint() uint64 {
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		d.bad, size, n = true, len(d.b), 0
	}
	d.b = d.b[size:]
	return n
}

func (d *reader) text() string {
	n := int(d.byte())
	if n > len(d.b) {
		d.bad, n = true, 0
		d.b = nil
	}
	s := d.all[len(d.all)-len(d.b):][:n]
	d.b = d.b[n:]
	return s
}

func (d *reader) address() (at netip.AddrPort) {
	if v := d.bytes(int(d.byte())); len(v) > 0 && at.UnmarshalBinary(v) != nil {
		d.bad = true
	}
	return at
}

// read fills e from the bytes of an event, and reports whether they are valid.
func (e *Event) read(b []byte) bool {
	d := &reader{b: b, all: string(b)}
	*e = Event{Kind: Kind(d.byte())}
	r := &e.Record
	r.Outcome = record.Outcome(d.byte())
	flags := d.byte()
	copy(r.ID[:], d.bytes(len(r.ID)))
	var queued, paused, loop, waits, before, retries, failures, reason, culprit, first, cause int64
	var leg [6]int64
	for _, to := range [...]*int64{
		&e.now, &r.Accepted, &r.Begun, &r.Header, &r.Preread, &r.Routed, &queued, &paused, &r.Picked, &r.Connecting, &r.Joined,
		&r.ClientFirst, &r.EndpointFirst, &r.HalfClosed, &r.Ended, &loop, &waits, &before, &retries, &failures,
		&r.Result.AToB.Spliced, &r.Result.AToB.Copied, &r.Result.AToB.Carried, &r.Result.AToB.Lost, &r.Result.BToA.Spliced, &r.Result.BToA.Copied, &r.Result.BToA.Carried, &r.Result.BToA.Lost,
		&reason, &culprit, &first, &r.Counts.Process, &r.Counts.Listener, &r.Counts.Upstream, &r.Counts.Endpoint,
		&leg[0], &leg[1], &leg[2], &leg[3], &leg[4], &leg[5], &cause,
	} {
		*to = d.int()
	}
	e.setNumbers(queued, paused, loop, waits, before, retries, failures, reason, culprit, first, cause)
	r.ClientLeg = record.Leg{Known: flags&flagClientLeg != 0, RTT: time.Duration(leg[0]), MinRTT: time.Duration(leg[1]), Retransmitted: uint32(leg[2])}
	r.EndpointLeg = record.Leg{Known: flags&flagEndpointLeg != 0, RTT: time.Duration(leg[3]), MinRTT: time.Duration(leg[4]), Retransmitted: uint32(leg[5])}
	if flags&flagOperator != 0 {
		r.Err = record.ErrOperator
	}
	r.TLS, r.Redispatched, r.Adopted = flags&flagTLS != 0, flags&flagRedispatched != 0, flags&flagAdopted != 0
	cred := source.Credentials{PID: int32(d.int()), UID: uint32(d.uint()), GID: uint32(d.uint())}
	client := d.address()
	if r.Client = source.TCP(client); flags&flagUnix != 0 {
		r.Client = source.Unix(cred)
	}
	r.Source, r.Destination, r.Local, r.EndpointAddress = d.address(), d.address(), d.address(), d.address()
	for _, to := range [...]*string{
		&r.Listener, &r.Upstream, &r.Endpoint, &r.Refusal, &r.Why, &r.Protocol, &r.Verdict, &r.Protocols, &e.error, &r.EndpointPath, &r.ServerName, &r.Tags, &r.User, &r.Database, &r.Host, &r.Path,
	} {
		*to = d.text()
	}
	return !d.bad && e.Kind <= End && r.Outcome <= record.CancelUnsent
}

func (e *Event) setNumbers(queued, paused, loop, waits, before, retries, failures, reason, culprit, first, cause int64) {
	r := &e.Record
	r.Queued, r.Paused, r.Loop, r.Waits, r.Before = time.Duration(queued), time.Duration(paused), int(loop), uint16(waits), uint32(before)
	r.Retries, r.NumFailures, e.cause = uint16(retries), uint16(failures), record.Cause(cause)
	r.Result.Reason, r.Result.Culprit, r.Result.First = relay.Reason(reason), relay.Side(culprit), relay.Side(first)
}
