package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/sockopt"
	"github.com/penstock/penstock/relay"
)

// A Service is the treatment of the clients of a listening socket. It is a snapshot: it is not changed while it is in use,
// but replaced by another Service. A client keeps the Service with which it was accepted. Several sockets may share one.
// Fields may be zero unless they say otherwise.
type Service struct {
	// Name is the listener's name, for listings and the session log. If a socket gets another listener, its earlier clients
	// keep the earlier name.
	Name string
	// Admitter admits clients; nil: all are admitted.
	Admitter Admitter
	// Preread is the data to look at before a target is chosen.
	Preread Preread
	// Lane says whether the sessions may leave user space.
	Lane LaneUse
	// Limits are for sessions for which [Search.Reached] returns none; nil: the relay's limits.
	Limits *relay.Limits
	// Options are the options of the sockets that connect.
	Options sockopt.Options
	// NewSearch makes a [Search]. A Search serves one client after the other, so there are only as many as were ever in use
	// at the same time. Loops call NewSearch on their goroutines, several at a time. It is required.
	NewSearch func() Search
	// Refusal returns the bytes that a refused client gets before it is closed properly, within a few seconds. Without bytes,
	// or without a Refusal, the client is reset. It is not called while a first message is awaited. Several loops may call it
	// at the same time; it must not wait.
	Refusal func(c *Client, cause error) []byte
}

// A Preread is the data to look at before a target is chosen. It is not consumed, except for
// the header of the PROXY protocol. The zero value looks at nothing, and costs nothing.
type Preread struct {
	// Header selects the clients that have to send a PROXY header first. The header is consumed, and has its own timeout.
	// Nil: no client.
	Header *proxyproto.Policy
	// Hello reads the client's TLS ClientHello into [Client.Hello]. A
	// client that sends anything else is reset, unless AnyHello is set.
	Hello bool
	// AnyHello also serves clients without a proper hello, with an empty [Client.Hello]: clients that
	// send data other than TLS, a hello that crypto/tls does not accept, a part of a hello, or, for
	// Timeout, nothing. With Data, clients that send nothing are not served.
	AnyHello bool
	// Data waits for the client's first byte.
	Data bool
	// Postgres, unless nil, reads and answers PostgreSQL's negotiation, in place of Hello and Data.
	Postgres *Postgres
	// First, unless nil, looks at the client's first bytes until they decide its route, in place of
	// Hello.
	First FirstBytes
	// Silence is how long a client may say nothing until First is asked for a route without bytes; 0: it is not asked.
	Silence time.Duration
	// Timeout is how long Hello, Data, First or Postgres may take; 0: 5 s.
	Timeout time.Duration
}

// FirstBytes looks at clients' first bytes for a listener. It is used by all loops at once.
type FirstBytes interface {
	// Max is the most bytes that are looked at.
	Max() int
	// Look looks at all bytes that a client has sent so far, none at first, and notes in
	// [Client.First] what they show. need is the number of bytes before the next look makes
	// sense, or 0 if the client's route is decided. An error means that it can never be
	// decided.
	Look(c *Client, b []byte) (need int, err error)
	// Silent notes that a client has said nothing for [Preread.Silence], and reports whether
	// there is a route for it.
	Silent(c *Client) bool
}

// expectsHeader reports whether a peer has to send a header first.
func (p *Preread) expectsHeader(c *Client) bool {
	return p.Header != nil && (p.Header.Everybody() || p.Header.Expects(c.Peer()))
}

// Wait returns how long the client may take for its first bytes.
func (p *Preread) Wait() time.Duration { return cmp.Or(max(p.Timeout, 0), 5*time.Second) }

// Reasons to refuse a client before the search for a target. Packages proxyproto and clienthello,
// and an [Admitter], have reasons of their own.
var (
	// ErrPrereadTimeout is wrapped by the error of a client that has not sent the data of its [Preread] in time, see
	// [TooLate].
	ErrPrereadTimeout = errors.New("preread timeout")
	// ErrHeaderTimeout is the same for its PROXY header.
	ErrHeaderTimeout = errors.New("PROXY header timeout")
	// ErrPrereadMemory is the error of a client if there is no memory for its first bytes, see
	// [Config.PrereadMemory].
	ErrPrereadMemory = errors.New("no memory is left for first bytes: this client's first bytes are too long, or arrive in too many pieces")
	// ErrPrereadEnded is the error of a client that has ended in the middle of its first bytes.
	ErrPrereadEnded = errors.New("the client ended in the middle of its first bytes")
	// ErrHeaderEnded is the same for its PROXY header.
	ErrHeaderEnded = errors.New("the client ended in the middle of its PROXY header")
)

// TooLate returns the error of a client whose first bytes are incomplete after a time. of names the expected data, and got
// is the number of bytes that have come; negative: unknown.
func TooLate(cause error, after time.Duration, got int, of string) error {
	switch {
	case got == 0:
		return fmt.Errorf("%w: the client has sent nothing for %v", cause, after)
	case got < 0:
		return fmt.Errorf("%w: the client's first bytes were incomplete after %v: only a part of %s had arrived", cause, after, of)
	}
	return fmt.Errorf("%w: the client's first bytes were incomplete after %v: only %d bytes of %s had arrived", cause, after, got, of)
}

// An Admitter says which clients a listening socket may have. Loops call its methods on their goroutines, several at a
// time, and the methods must not wait. Released is called on other goroutines as well.
type Admitter interface {
	// CanAccept is called before each accept, even if no client is waiting. It returns nil,
	// or the reason to pause accepting from the listening socket; the reason is not
	// reported. While accepting pauses, it is called again when one of its clients has left,
	// after [Listening.Wake], after NextSlotIn, and every tenth of a second.
	CanAccept(now int64) error
	// NextSlotIn is called after CanAccept, on the same goroutine. It returns the time until a rate limit has room again; 0
	// if this is not known.
	NextSlotIn(now int64) time.Duration
	// Admit is asked when a client was accepted, right after CanAccept on the same goroutine. So an implementation that
	// counts clients here and checks the count in CanAccept exceeds a limit by at most one client for each loop, and need
	// not refuse any. identified means that [Client.Source] is final, so a client that is refused for its source need not
	// be counted. If Admit returns nil, Released is called in the end.
	Admit(c *Client, identified bool, now int64) error
	// AdmitSource is asked about a client that was not identified in Admit, once its source is
	// known: its PROXY header has come, or the kernel may be asked for the credentials of a
	// unix client. If it or Admit returns an error, the client is reset, and [Host.Refused] is
	// called.
	AdmitSource(c *Client, now int64) error
	// Uncounted returns how to count a client by its source and get its new token, if it was admitted while sources were not
	// counted, but they are now; otherwise nil. It is asked when the client is joined, and about sessions by [Group.Recount].
	Uncounted(admissionToken uint64) (count func(from source.Source, now int64) uint64)
	// Released is called once for each client for which Admit has returned nil, after its end, with the last value of
	// [Client.AdmissionToken].
	Released(admissionToken uint64)
}

// Action is the kind of a [Step].
type Action uint8

const (
	// GiveUp: no target takes the client, and it is reset. Err says why.
	GiveUp Action = iota
	// Connect to Step.Address, then call Reached or Failed.
	Connect
	// Resolve Step.Host by Step.Resolver, then call Resolved.
	Resolve
	// Pause for Step.Timeout, then ask Next again.
	Pause
	// Park the client until its [Waker] is called or Step.Timeout (unless 0) has passed. Then Next is called, and has to
	// find out which of the two has happened.
	Park
	// Respond with Step.Bytes, then close the connection properly: send the end of file, and wait for the client's, for at
	// most Step.Timeout (0: 5 s).
	Respond
	// Look at the client's first bytes, which stay in its queue. Next is called when Step.Need bytes have come, or no more
	// come, with the first Step.Most of them in [Client.Looked]. A client that does not send Step.Need bytes within
	// Step.Timeout (unless 0) is refused with [ErrPrereadTimeout].
	Look
	// Handover: Step.To gets the client, on a goroutine of its own.
	Handover
)

// A Step of a [Search]. Only the fields that its Action names are read.
type Step struct {
	Action  Action
	Address loop.Address
	// Source is the local address to connect from, if valid.
	Source netip.Addr
	// Congestion is the congestion control of the socket that connects; nil: the system's.
	Congestion *sockopt.Congestion
	// Timeout is for this step; 0: none, unless the Action says otherwise.
	Timeout time.Duration
	// Recheck is how often [Search.Abandon] is asked while Connect or Resolve is under way; 0:
	// never.
	Recheck time.Duration
	// ProxyHeader means that [Search.ProxyHeader] has bytes to be written before the client's.
	ProxyHeader bool
	Host        string
	Need, Most  int
	Unqueued    bool // Park waits for something other than a place at an endpoint
	Resolver    Resolver
	Bytes       []byte // not changed as long as there are clients
	To          func(*Offloaded)
}

// A Resolver looks up the addresses of a host, within a timeout unless it is 0. It is called on a goroutine of its own, and
// may wait.
type Resolver func(ctx context.Context, host string, timeout time.Duration) ([]netip.Addr, error)

// A Search finds the way of one client to an endpoint. It returns steps and gets their results, and never waits. It belongs
// to one loop, which calls its methods on its goroutine; times are the loop's clock. It serves one client at a time: Begin,
// then the other methods, then Close. Before Next is called again, the step that it returned is done, or has failed.
type Search interface {
	// Begin begins a search for a client: the first one, another one, or the same one again, after Close.
	Begin(c *Client, now int64)
	// Next returns the next step.
	Next(now int64) Step
	// Abandon reports whether to give up the step under way, see Step.Recheck. The step is then cancelled, and fails with
	// record.ErrAbandoned.
	Abandon(now int64) bool
	// Resolved passes the result of Resolve. The search owns the slice afterwards.
	Resolved(ips []netip.Addr, err error)
	// Failed passes the error of Connect, or of writing the PROXY header.
	Failed(err error, now int64)
	// Circle returns an error if the address of a Connect leads back into this process in a circle. It is asked about the
	// socket before the connect; then it fails as the connect does. It is asked again about the connected socket, but for
	// TCP only if the socket belongs to package net.
	Circle(fd int, connected bool) error
	// Overruled reports whether a new connection must not be used. The connection is then reset before it gets a byte, and
	// Next is called.
	Overruled() bool
	// ProxyHeader appends to b the bytes that are written before the client's bytes. It is
	// called when the connection is made, if Step.ProxyHeader is set.
	ProxyHeader(b []byte) []byte
	// Reached is called when there is a connection. It returns the limits of the session that begins now, nil for the
	// [Service]'s. If their Of is a [Binding], it observes the session. After an error the connection is reset, and Next is
	// called.
	Reached(now int64) (*relay.Limits, error)
	// Mirror is asked when the session begins, after Reached and before Close. It returns nil for no mirror.
	Mirror(now int64) *Mirror
	// Rewritten returns the side whose bytes are rewritten, or SideNone. It is called after Next has asked for a connection
	// to an endpoint.
	Rewritten() relay.Side
	// Rewrite attaches the rewriter of a new session to the socket of the side that Rewritten returned. It is called
	// after Reached, unless Rewritten is SideNone.
	Rewrite(s *relay.Socket)
	// Err says why there is nothing left to try, after GiveUp.
	Err() error
	// Close ends the search: the session has begun, the client was handed over, or it is not served (it was refused, has
	// left, or the process ends). The search gives back the places that it still holds for the client.
	Close()
}

// A Binding observes sessions, and usually stands for their endpoint. It is the field Of of a session's [relay.Limits], so
// that a session needs no memory for it; many sessions may share a Binding. Its methods must not wait.
type Binding interface {
	// Names returns the names for lists.
	Names() (upstream, endpoint string)
	// Ended is called once at the end of a session, on the goroutine of its loop or, after a hand-over, on another one.
	// loop is the index of the client's loop: ends are counted by loop, so that loops need not share counters.
	Ended(loop int, r relay.Result, err error)
	// Moved gets the bytes of ended sessions: each session once, alone or together with others, on any goroutine. See
	// [Group.Metered].
	Moved(b Bytes)
	// Watch gets the state of a session at a time of the loops' clock, from a loop or from the caller of [Group.Watch].
	Watch(t relay.Turn, now int64)
}

func bindingOf(l *relay.Limits) Binding {
	if l == nil {
		return nil
	}
	b, _ := l.Of.(Binding)
	return b
}
