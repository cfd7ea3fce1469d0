// Package record describes the course of one client, from its accept to its end. The session log, the traces, and
// the lines of the debug log are made from it.
//
// A [Record] is large, and lives for a short time: while a client is on its way to an endpoint, and again when its
// session ends. In between, the session keeps a [Kept], which is small.
package record

import (
	"math"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/relay"
)

// An Outcome says how far a client has come in the end.
type Outcome uint8

const (
	// Joined means that the client was joined to an endpoint. [Record.Result] says how the session ended.
	Joined Outcome = iota
	// Refused means that the client was reset. [Record.Err] says why.
	Refused
	// Left means that the client has gone before it was joined.
	Left
	// Responded means that the client got a response in place of an endpoint.
	Responded
	// Canceled means that the client was cut before it was joined, because the process ends.
	Canceled
	// CancelSent means that the client's CancelRequest of PostgreSQL was sent to one or more endpoints.
	CancelSent
	// CancelUnsent means that the client's CancelRequest could not be sent to any endpoint.
	CancelUnsent
)

var outcomeNames = [...]string{"joined", "refused", "left", "responded", "canceled", "cancel_sent", "cancel_unsent"}

// String returns the name of the outcome in a line.
func (o Outcome) String() string { return outcomeNames[o] }

// Requested notes that the client has sent a CancelRequest, and whether an endpoint got it.
func (r *Record) Requested(sent bool) {
	switch {
	case r == nil:
	case sent:
		r.Outcome = CancelSent
	default:
		r.Outcome = CancelUnsent
	}
}

// The largest sizes of names from the network, in bytes. A longer name is cut, and ends with [Cut].
const (
	MaxServerName = 96
	MaxProtocols  = 32
	MaxTags       = 256
	MaxLogin      = 63 // the name of a user or a database
	MaxHost       = 96
	MaxPath       = 96
	// Cut marks a name that was cut.
	Cut = "…"
)

// MaxFailures is how many failed attempts are described; all are counted.
const MaxFailures = 3

// A Record is the course of one client. It belongs to one goroutine at a time, usually the goroutine of the
// client's loop. Times are of the loops' clock, in nanoseconds. 0 means that the client has not come that far, or
// that the time is not known. Methods that note something may be called on a nil *Record, and then do nothing.
type Record struct {
	ID      ID
	Outcome Outcome
	Loop    int // index of the loop; negative if goroutines served the client
	// TLS says that this process ended or began TLS.
	TLS bool
	// Adopted says that the session began in an earlier process, and came from the lane. Nothing is known of the
	// time before the session left user space.
	Adopted bool
	// Sampler is the number of the sampler by which the session is traced; 0: it is not traced.
	Sampler uint8

	// Listener, Upstream and Endpoint are names of the configuration, and empty while they are not known. Endpoint
	// is the endpoint that was tried last.
	Listener, Upstream, Endpoint string
	Rest

	// Accepted is when the client was accepted. Begun is when the limit of connections had a place for the client.
	// Header is when its PROXY header was complete, and Preread when its hello or first byte had come. Routed is
	// when the search for an endpoint began.
	Accepted, Begun, Header, Preread, Routed int64
	// Queued is the time spent in queues so far. Paused is the time spent in pauses between attempts. Waits counts
	// the queues that the client was in.
	Queued, Paused time.Duration
	Waits          uint16
	// Picked is when the last endpoint was picked. Connecting is when the last attempt to connect began. Joined is
	// when the client was joined with that endpoint.
	Picked, Connecting, Joined int64
	// ClientFirst and EndpointFirst are when the first byte of a side was moved. HalfClosed is when the first end
	// of file was passed on, which came from the side Result.First. Ended is when the session ended.
	ClientFirst, EndpointFirst, HalfClosed, Ended int64

	// Retries is how many retries were taken under retry.attempts, and not while held. Redispatched says that the last attempt went to
	// another endpoint than the first attempt.
	Retries      uint16
	Redispatched bool
	NumFailures  uint16 // failed attempts

	// Result is the session's result. If the client got a response in place of an endpoint, Result has the bytes of
	// the response. Err is the cause of the end. Both are valid only during the call that passes the record.
	Result relay.Result
	Err    error
	// Why is the reason for the client's refusal, in the word under which the listener counts it. Late says that its first
	// bytes did not come in time, Cut that it ended in the middle of them.
	Why       string
	Late, Cut bool

	// Counts are the numbers of clients when this client ended, including this client.
	Counts Counts
	// ClientLeg and EndpointLeg are the kernel's figures of the two connections at the end. Verdict is what has
	// limited the session, in one word, or empty if that was not judged. The worker fills in all three when it
	// judges the session.
	ClientLeg, EndpointLeg Leg
	Verdict                string

	waiting, pausing int64 // start of the present wait or pause; 0: there is none
}

// A Rest is the part of a [Record] that only some sessions have, apart from usual addresses.
type Rest struct {
	// Client is the remote end of the client's connection, and Local the own end. Local is invalid for a unix
	// socket. Source and Destination are from the client's PROXY header, and invalid without a header.
	Client              source.Source
	Source, Destination netip.AddrPort
	Local               netip.AddrPort
	// EndpointAddress is the address of the last attempt. If that was a unix socket, EndpointPath is its path
	// instead.
	EndpointAddress netip.AddrPort
	EndpointPath    string
	// ServerName is the SNI of the client's hello. Protocols is the ALPN that the hello offers, separated by
	// commas. If TLS ends here, it is the negotiated protocol. ServerName may contain any byte.
	ServerName, Protocols string
	// Tags come from filters, as "name=value name=value".
	Tags string
	// User and Database are from a PostgreSQL client's startup message, if it was read. They may contain any byte
	// except 0.
	User, Database string
	// Protocol is the client's protocol, recognised by its first bytes, if they were looked at for that. Host and
	// Path are from the client's first HTTP/1 request.
	Protocol, Host, Path string
	// Before is how many clients were before the client in the first queue. Failures are the first failed attempts.
	Before   uint32
	Failures [MaxFailures]Failure
}

// A Failure is an attempt at an endpoint that has failed.
type Failure struct {
	Endpoint     string
	Began, Ended int64 // of the loops' clock
	Cause        Cause
}

// LegOf returns the part of an account that a record has.
func LegOf(l *relay.Leg) Leg {
	return Leg{Known: l.Known, RTT: l.RTT, MinRTT: l.MinRTT, Retransmitted: uint32(min(l.Retransmitted, 1<<32-1))}
}

// Counts are numbers of clients.
type Counts struct{ Process, Listener, Upstream, Endpoint int64 }

// A Leg is one of the two connections of a session, as the kernel sees it.
type Leg struct {
	Known         bool          // otherwise the other fields mean nothing
	RTT, MinRTT   time.Duration // 0: none was measured
	Retransmitted uint32        // segments
}

// Begin begins a record.
func (r *Record) Begin(id ID, listener string, loop int, accepted int64) {
	*r = Record{ID: id, Listener: listener, Loop: loop, Accepted: accepted}
}

// Wait notes that the client waits in a queue.
func (r *Record) Wait(now int64) {
	if r != nil && r.waiting == 0 {
		r.waiting = max(now, 1)
	}
}

// Enqueued notes that the client has joined a queue behind a number of other clients.
func (r *Record) Enqueued(before int64) {
	if r == nil {
		return
	}
	if count(&r.Waits); r.Waits == 1 {
		r.Before = uint32(min(max(before, 0), 1<<32-1))
	}
}

// Pause notes that a pause before the next attempt begins.
func (r *Record) Pause(now int64) {
	if r != nil && r.pausing == 0 {
		r.pausing = max(now, 1)
	}
}

// Resume ends a wait or a pause, if there is one.
func (r *Record) Resume(now int64) {
	if r == nil {
		return
	}
	if r.waiting != 0 {
		r.Queued += time.Duration(now - r.waiting)
		r.waiting = 0
	}
	if r.pausing != 0 {
		r.Paused += time.Duration(now - r.pausing)
		r.pausing = 0
	}
}

// Route notes the upstream that the client goes to.
func (r *Record) Route(upstream string) {
	if r != nil {
		r.Upstream = upstream
	}
}

// Pick notes that an endpoint was picked.
func (r *Record) Pick(endpoint string, now int64) {
	if r == nil {
		return
	}
	r.Redispatched = r.Redispatched || r.NumFailures > 0 && r.Endpoint != endpoint
	r.Endpoint, r.Picked = endpoint, now
	r.EndpointAddress, r.EndpointPath = netip.AddrPort{}, ""
}

// Retry notes that another attempt follows.
func (r *Record) Retry() {
	if r != nil {
		count(&r.Retries)
	}
}

// Fail notes that an attempt has failed.
func (r *Record) Fail(endpoint string, began, now int64, err error) {
	if r == nil {
		return
	}
	if int(r.NumFailures) < len(r.Failures) {
		r.Failures[r.NumFailures] = Failure{endpoint, began, now, CauseOf(err)}
	}
	count(&r.NumFailures)
}

// count adds one to a number, or leaves it at its largest value.
func count(n *uint16) {
	if *n < math.MaxUint16 {
		*n++
	}
}

// Connect notes that an attempt to connect begins.
func (r *Record) Connect(at netip.AddrPort, path string, now int64) {
	if r != nil {
		r.EndpointAddress, r.EndpointPath, r.Connecting = at, path, now
	}
}

// Hello notes the contents of a client's hello.
func (r *Record) Hello(serverName string, protocols []string) {
	if r == nil {
		return
	}
	r.ServerName = Bounded(serverName, MaxServerName)
	switch {
	case len(protocols) == 2 && protocols[0] == "h2" && protocols[1] == "http/1.1":
		r.Protocols = "h2,http/1.1" // a constant: the usual list allocates no memory
	case len(protocols) > 0:
		r.Protocols = joined(protocols)
	}
}

// Tag notes tags of a filter.
func (r *Record) Tag(tags string) {
	switch {
	case r == nil || tags == "":
	case r.Tags == "":
		r.Tags = Bounded(tags, MaxTags)
	default:
		r.Tags = Bounded(r.Tags+" "+tags, MaxTags)
	}
}

// Login notes the user and the database that a client has named.
func (r *Record) Login(user, database string) {
	if r != nil {
		r.User, r.Database = Bounded(user, MaxLogin), Bounded(database, MaxLogin)
	}
}

// First notes the protocol, and the host and path, that a client's first bytes have shown.
func (r *Record) First(protocol, host, path string) {
	if r != nil {
		r.Protocol, r.Host, r.Path = protocol, Bounded(host, MaxHost), Bounded(path, MaxPath)
	}
}

// joined joins protocols with commas, as many as there is space for. A byte that is no visible ASCII character, or would make two lists
// look the same, is written as in RFC 7838: %2C.
func joined(protocols []string) string {
	if len(protocols) == 1 && !strings.ContainsFunc(protocols[0], encoded) {
		return Bounded(protocols[0], MaxProtocols)
	}
	var space [MaxProtocols + 4]byte
	b := space[:0]
	for i, p := range protocols {
		if i > 0 {
			b = append(b, ',')
		}
		for i := 0; i < len(p) && len(b) <= MaxProtocols; i++ {
			if c := p[i]; encoded(rune(c)) {
				b = append(b, '%', "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
			} else {
				b = append(b, c)
			}
		}
		if len(b) > MaxProtocols {
			break
		}
	}
	return Bounded(string(b), MaxProtocols)
}

func encoded(c rune) bool { return c <= ' ' || c >= 0x7f || c == ',' || c == '%' }

// Bounded cuts a name that is longer than most bytes, and marks the end.
func Bounded(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := most - len(Cut)
	for i := range utf8.UTFMax { // do not cut within a character
		if utf8.RuneStart(s[end-i]) {
			end -= i
			break
		}
	}
	return s[:end] + Cut
}

// From returns the address of the client: the source in its PROXY header if there is one, otherwise the remote
// end.
func (r *Record) From() source.Source {
	if r.Source.IsValid() {
		return source.TCP(r.Source)
	}
	return r.Client
}

// EndpointName returns the address of the last endpoint to which a connection was attempted; empty: there was
// none.
func (r *Record) EndpointName() string {
	switch {
	case r.EndpointAddress.IsValid():
		return r.EndpointAddress.String()
	case r.EndpointPath != "":
		return "unix:" + r.EndpointPath
	}
	return ""
}

// Since returns the time from the accept to a time of the record, or 0 if at is 0.
func (r *Record) Since(at int64) time.Duration {
	if at == 0 {
		return 0
	}
	return time.Duration(at - r.Accepted)
}
