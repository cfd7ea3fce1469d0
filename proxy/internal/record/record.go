// Package record is the course of one client, from its accept to its end: the base of the
// session log, of traces, and of the lines of the debug log.
//
// A [Record] is wide and short-lived: there is one while a client is on its way to an endpoint,
// and one is filled again when the session has ended. In between, a session that rests keeps a
// [Kept], which is small.
package record

import (
	"net/netip"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/relay"
)

// An Outcome is how far a client has come in the end.
type Outcome uint8

const (
	// Joined: it was joined to an endpoint. [Record.Result] says how that ended.
	Joined Outcome = iota
	// Refused: it was reset; [Record.Err] says why.
	Refused
	// Left: it has gone before it was joined.
	Left
	// Responded: it got a response in place of an endpoint.
	Responded
	// Canceled: it was cut before it was joined, because everything ends.
	Canceled
	// CancelSent: its CancelRequest of PostgreSQL was sent to an endpoint, or to several.
	CancelSent
	// CancelUnsent: its CancelRequest could be sent to no endpoint.
	CancelUnsent
)

var outcomeNames = [...]string{"joined", "refused", "left", "responded", "canceled", "cancel_sent", "cancel_unsent"}

// String is its name in a line.
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

// Bounds of names from the network, in bytes. A longer one is cut, and ends with [Cut].
const (
	MaxServerName = 96
	MaxProtocols  = 32
	MaxTags       = 256
	MaxLogin      = 63 // of a user's or a database's name
	MaxHost       = 96
	MaxPath       = 96
	// Cut marks a name that was cut.
	Cut = "…"
)

// MaxFailures is how many failed attempts are described; all are counted.
const MaxFailures = 3

// A Record is the course of one client. It belongs to one goroutine at a time, usually the
// goroutine of the client's loop. Times are the loops' clock in nanoseconds; 0 means that the
// client has not come that far, or that it is not known when. Methods that note something do
// nothing on a nil *Record: no record is kept then.
type Record struct {
	ID      ID
	Outcome Outcome
	Loop    int // index of the loop; negative: there were goroutines
	// TLS says that TLS has ended or begun in this process.
	TLS bool
	// Adopted says that the session began in an earlier process, and came from the lane: nothing is
	// known of the time before it left user space.
	Adopted bool
	// Sampler is the number of the sampler that has the session traced; 0: it is not traced.
	Sampler uint8

	// Listener, Upstream and Endpoint are names of the configuration, empty as long as they are not
	// known. Endpoint is the endpoint that was tried last.
	Listener, Upstream, Endpoint string
	// Client is the connection's other end; Source and Destination are from its PROXY header; without
	// a header they are invalid. Local is the connection's own end; invalid for a unix socket.
	Client              source.Source
	Source, Destination netip.AddrPort
	Local               netip.AddrPort
	// EndpointAddress is where the last attempt went to, EndpointPath if that is a unix socket.
	EndpointAddress netip.AddrPort
	EndpointPath    string
	// ServerName is the SNI of the client's hello. Protocols is the ALPN that it offers, with
	// commas between, and the negotiated one where TLS ends here. They may hold any byte.
	ServerName, Protocols string
	// Tags come from filters, as "name=value name=value".
	Tags string
	// User and Database are from a PostgreSQL client's startup message, if it was read. They may hold
	// any byte but 0.
	User, Database string
	// Protocol is the client's protocol by its first bytes, if they were looked at for that. Host and
	// Path are from its first HTTP/1 request.
	Protocol, Host, Path string

	// Accepted is when the client was accepted, and Begun when it had a place under the limit of
	// connections. Header is when its PROXY header was complete, Preread when its hello or first
	// byte was, Routed when the search for an endpoint began.
	Accepted, Begun, Header, Preread, Routed int64
	// Queued is the time spent in queues so far, Paused the time between attempts. Waits counts the
	// queues that the client was in, Before the clients that were in the first one before it.
	Queued, Paused time.Duration
	Waits          uint16
	Before         uint32
	// Picked is when the last endpoint was picked, Connecting when the last connect to it
	// began, Joined when that was joined with the client.
	Picked, Connecting, Joined int64
	// ClientFirst and EndpointFirst are when the first byte of a side was moved. HalfClosed is when
	// the first end of file was passed on; Result.First is the side it came from. Ended is the end.
	ClientFirst, EndpointFirst, HalfClosed, Ended int64

	// Retries is how many attempts followed a failed attempt; Redispatched says that the last attempt
	// went to another endpoint than the first.
	Retries      uint16
	Redispatched bool
	// Failures are the first of the attempts that have failed, NumFailures how many have.
	Failures    [MaxFailures]Failure
	NumFailures uint16

	// Result is the session's result. If the client got a response in place of an endpoint, it has the
	// response's bytes. Err is the cause of the end. Both are valid during the call that passes the
	// record.
	Result relay.Result
	Err    error
	// Refusal is how a client was refused, in package worker's word, and Why the reason, in the word
	// that its listener counts it by; empty: the reason was not asked for.
	Refusal, Why string

	// Counts are the numbers of clients at the end, including this one.
	Counts Counts
	// ClientLeg and EndpointLeg are the kernel's figures of the two connections at the end, and
	// Verdict is the part that has limited the session, in one word; empty: that was not looked at. They
	// are filled in by the worker, when it has the session judged.
	ClientLeg, EndpointLeg Leg
	Verdict                string

	waiting, pausing int64 // clock since when; 0: it does not
}

// A Failure is an attempt at an endpoint that has failed.
type Failure struct {
	Endpoint     string
	Began, Ended int64 // clock
	Cause        Cause
}

// LegOf returns the part of an account that is recorded.
func LegOf(l *relay.Leg) Leg {
	return Leg{Known: l.Known, RTT: l.RTT, MinRTT: l.MinRTT, Retransmitted: uint32(min(l.Retransmitted, 1<<32-1))}
}

// Counts are numbers of clients.
type Counts struct{ Process, Listener, Upstream, Endpoint int64 }

// A Leg is one of the connections of a session, as the kernel sees it.
type Leg struct {
	Known         bool          // the others mean nothing without
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

// Enqueued notes that the client has joined a queue, and the number of clients before
// it.
func (r *Record) Enqueued(before int64) {
	if r == nil {
		return
	}
	if r.Waits++; r.Waits == 1 {
		r.Before = uint32(min(max(before, 0), 1<<32-1))
	}
}

// Pause notes that the client pauses before the next attempt.
func (r *Record) Pause(now int64) {
	if r != nil && r.pausing == 0 {
		r.pausing = max(now, 1)
	}
}

// Resume is the end of waiting, or of a pause, if there was one.
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

// Retry notes that another attempt is going to be made.
func (r *Record) Retry() {
	if r != nil {
		r.Retries++
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
	r.NumFailures++
}

// Connect notes that a connection is going to be made.
func (r *Record) Connect(at netip.AddrPort, path string, now int64) {
	if r != nil {
		r.EndpointAddress, r.EndpointPath, r.Connecting = at, path, now
	}
}

// Hello notes what a client's hello has said.
func (r *Record) Hello(serverName string, protocols []string) {
	if r == nil {
		return
	}
	r.ServerName = Bounded(serverName, MaxServerName)
	switch {
	case len(protocols) == 2 && protocols[0] == "h2" && protocols[1] == "http/1.1":
		r.Protocols = "h2,http/1.1" // the usual ones take no memory
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

// joined joins protocols with commas, as far as there is room.
func joined(protocols []string) string {
	if len(protocols) == 1 {
		return Bounded(protocols[0], MaxProtocols)
	}
	var b [MaxProtocols + 1]byte
	n := copy(b[:], protocols[0])
	for _, p := range protocols[1:] {
		n += copy(b[n:], ",")
		n += copy(b[n:], p)
	}
	return Bounded(string(b[:n]), MaxProtocols)
}

// Bounded returns a name of at most most bytes: a longer name is cut and marked.
func Bounded(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := most - len(Cut)
	for i := range utf8.UTFMax { // not within a character: its first bytes alone are not UTF-8
		if utf8.RuneStart(s[end-i]) {
			end -= i
			break
		}
	}
	return s[:end] + Cut
}

// From is the address of the client: the source in its PROXY header if the header has
// one.
func (r *Record) From() source.Source {
	if r.Source.IsValid() {
		return source.TCP(r.Source)
	}
	return r.Client
}

// EndpointName names the address of the last endpoint that was connected to; empty: there was
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

// Since returns the time from the accept until a time of the record; 0 if at is 0.
func (r *Record) Since(at int64) time.Duration {
	if at == 0 {
		return 0
	}
	return time.Duration(at - r.Accepted)
}
