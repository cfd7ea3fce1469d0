package core

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/header"
	"github.com/penstock/penstock/proxy/socket"
	"github.com/penstock/penstock/relay"
)

// A Service is what is done for the clients of a listening socket. It is a snapshot: it
// is not changed once it is in use, but replaced by another one, and a client keeps the
// one that was in force when it was accepted, until its end. Several sockets may have
// the same. Where a field says nothing else it may be zero.
type Service struct {
	// Admitter says who may come in; nil lets everybody in.
	Admitter Admitter
	// Preread is what is looked at before a target is chosen.
	Preread Preread
	// Limits are those of sessions for which [Search.Reached] returns none; nil means
	// those of the relay.
	Limits *relay.Limits
	// Options are those of the sockets that connect.
	Options socket.Options
	// NewSearch makes a [Search], which is used for one client after the other: as many
	// are made as have ever been in use at a time. It is called on the loops'
	// goroutines, several at a time. It is required.
	NewSearch func() Search
}

// A Preread is what is looked at before a target is chosen. What it reads is not
// consumed, except for the header of the PROXY protocol. The zero value looks at
// nothing, and costs nothing.
type Preread struct {
	// Header is who has to send a header of the PROXY protocol first, which is taken
	// away; it has a timeout of its own. Nil: nobody.
	Header *header.Policy
	// Hello has the client's TLS ClientHello read, which [Client.Hello] is then. A
	// client that sends anything else is reset, unless AnyHello is set.
	Hello bool
	// AnyHello has clients served without a hello, [Client.Hello] empty, that send
	// anything else: what is no TLS, what crypto/tls does not accept, a part of a hello,
	// or, for Timeout, nothing. Data makes an exception of the last of these.
	AnyHello bool
	// Data has the first byte waited for.
	Data bool
	// Timeout is how long Hello or Data may take to come; 0: 5 s.
	Timeout time.Duration
}

// expectsHeader reports whether a peer has to send a header first.
func (p *Preread) expectsHeader(c *Client) bool {
	return p.Header != nil && (p.Header.Everybody() || p.Header.Expects(c.Peer()))
}

const defaultPrereadTimeout = 5 * time.Second

func (p *Preread) wait() time.Duration {
	if p.Timeout <= 0 {
		return defaultPrereadTimeout
	}
	return p.Timeout
}

// Why a client is refused that a target was not even looked for. Those of packages
// header and hello, and what an [Admitter] says, are others.
var (
	// ErrPrereadTimeout is the error of a client that has not sent in time what
	// [Preread] waits for.
	ErrPrereadTimeout = errors.New("the client did not send in time what its route depends on")
	// ErrHeaderTimeout is that of one that has not sent its PROXY header in time.
	ErrHeaderTimeout = errors.New("the client did not send its PROXY header in time")
	// ErrPrereadEnded is that of one that has ended in the middle of either.
	ErrPrereadEnded = errors.New("the client ended in the middle of what its route depends on")
)

// An Admitter says which clients a listening socket may have. Its methods are called
// on the goroutines of the loops, several at a time, and must not wait; Left is called
// on others as well.
type Admitter interface {
	// Room is asked before each client is accepted, also if there turns out to be none:
	// nil, or why accepting from the listening socket pauses, which nobody is told of.
	// It is asked again when one of its clients has left, when somebody calls
	// [Listening.Nudge], when a [RoomTimer] has said, and every tenth of a second.
	Room(now int64) error
	// Admit is asked when the client was accepted, right after Room on the same
	// goroutine: who counts clients here, and looks at the count in Room, has at most
	// one for each loop too many, and need not refuse any. identified says that all is
	// known already that [Client.Source] is going to return: so whoever is refused for it
	// need not be counted. If it returns nil, Left is called in the end.
	Admit(c *Client, identified bool, now int64) error
	// AdmitSource is asked about a client for which Admit was not told so, once it is
	// known who it is: its PROXY header has come, or the kernel may be asked who has
	// connected to a unix socket. With an error of it or of Admit the client is reset, and
	// [Host.Refused] told.
	AdmitSource(c *Client, now int64) error
	// Left is called once for each client for which Admit has returned nil, when
	// everything of it has ended, with what [Client.Ticket] was set to by then, or nil.
	Left(ticket any)
}

// A RoomTimer is an [Admitter] that knows when there is going to be room again, because
// time makes it. It is asked after Room, on the same goroutine, and answers how long it
// takes, or 0 if it does not know.
type RoomTimer interface {
	RoomIn(now int64) time.Duration
}

// Do is what a [Search] wants done next.
type Do uint8

const (
	// GiveUp: no target takes the client, which is reset. Err says why.
	GiveUp Do = iota
	// Connect to Step.Address, then call Reached or Failed.
	Connect
	// Resolve Step.Host by Step.Resolver, then call Resolved.
	Resolve
	// Pause for Step.Timeout, then ask Next again.
	Pause
	// Park the client until its [Waker] is called, or Step.Timeout has passed if that
	// is not 0, then ask Next again, which is to find out which of the two it was.
	Park
	// Respond with Step.Bytes, then close the connection properly: the end of file is
	// sent, and the client's is waited for, for Step.Timeout at most (0: 5 s).
	Respond
	// Handover: Step.To gets the client, on a goroutine of its own.
	Handover
)

// A Step of a [Search]. Only what its Do names is looked at.
type Step struct {
	Do      Do
	Address loop.Address
	// Source is the local address to connect from, if valid.
	Source netip.Addr
	// Timeout is for this step; 0 means none, unless Do says otherwise.
	Timeout time.Duration
	// MaybeSelf says that a socket can become connected to itself by connecting to
	// Address: it is looked at then, and has failed with upstream.ErrSelfConnect if
	// it is.
	MaybeSelf bool
	// Preface says that [Search.Preface] has something to be written before what the
	// client sends.
	Preface  bool
	Host     string
	Resolver Resolver
	Bytes    []byte // they stay as they are for as long as there are clients
	To       func(*Handed)
}

// A Resolver finds out the addresses of a host, within a time unless that is 0. It is
// called on a goroutine of its own, and waits.
type Resolver interface {
	Resolve(ctx context.Context, host string, timeout time.Duration) ([]netip.Addr, error)
}

// A Search is one client's way to an endpoint. It says what to do next and is told what
// came of it, and never waits. It belongs to one loop, on whose goroutine its methods
// are called; times are the loop's clock. It serves one client at a time: Begin, then
// the others in turn, then Close. What Next returns has been done, or has failed, before
// it is asked again.
type Search interface {
	// Begin begins anew, for a client: another one, or the same once more, after Close.
	Begin(c *Client, now int64)
	// Next says what to do now.
	Next(now int64) Step
	// Resolved tells what came of Resolve. The slice is the search's from then on.
	Resolved(ips []netip.Addr, err error)
	// Failed tells why Connect did not come to a connection, or that its preface could
	// not be written.
	Failed(err error, now int64)
	// Preface appends what is to be written before what the client sends to b. It is
	// asked once the connection is there, if Step.Preface says so.
	Preface(b []byte) []byte
	// Reached tells that there is a connection, and returns the limits of the session
	// that begins now, nil for those of the [Service]. If their Of is a [Bond], it is
	// told of the session's end. With an error the connection is reset, and Next asked.
	Reached(now int64) (*relay.Limits, error)
	// Err says why there was nothing left to be tried, after GiveUp.
	Err() error
	// Close tells that this is the end: the session has begun, or the client was
	// handed over, or it is not served, because it was refused, or has left, or
	// everything ends. What the search still holds for it is given back.
	Close()
}

// A Bond is what a session is bound to: an endpoint, as a rule. It is the Of of the
// limits that the session has, [relay.Limits], so that it costs the session nothing;
// many sessions may have the same.
type Bond interface {
	// Ended is told of the end of a session, once, on the goroutine of its loop or,
	// where it was handed over, on another one. It must not wait.
	Ended(r relay.Result, err error)
	// Names say what the session is bound to, for lists.
	Names() (upstream, endpoint string)
}

// bondOf returns what is bound to a session's limits, or nil.
func bondOf(l *relay.Limits) Bond {
	if l == nil {
		return nil
	}
	b, _ := l.Of.(Bond)
	return b
}
