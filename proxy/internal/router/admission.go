package router

import (
	"cmp"
	"errors"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/clienthello"
	"github.com/penstock/penstock/proxy/internal/filter"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/match"
	"github.com/penstock/penstock/proxy/internal/postgres"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A ListenerState holds the counters of a listener's clients. It exists as long as a file
// names the listener: after a reload, changed limits apply to the present counts.
type ListenerState struct {
	// Name is the listener's name. It is not changed.
	Name string

	Connections limit.Connections
	Rate        limit.Rate
	// Paused is called each time that accepting pauses at a limit, with the limit's key and the time of the loops' clock.
	// Loops call it, several at a time, and it must not wait. It may be nil, and is set before there are clients.
	Paused func(limit string, now time.Duration)

	Accepted atomic.Int64                  // clients
	current  atomic.Pointer[Listener]      // the generation in force; nil: none
	sources  atomic.Pointer[limit.Sources] // of all generations that limit sources; nil: none was in force
	queue    queue                         // clients beyond Connections that two loops have accepted at once
	account
	pausedAt atomic.Uint32 // the admissionLimit at which accepting pauses now

	// Refusals counts refused clients by reason, and Pauses how often accepting has paused, by the key of the limit. Spoken
	// counts clients by protocol, where a route depends on it; the last one, "other", is any other protocol.
	Refusals, Pauses, Spoken *tally.Reasons

	Cancels   Cancels
	Mirrors   *worker.MirrorCounts // of its sessions
	Rewritten atomic.Int64         // rewritten sessions that have begun
	Rewrites  *filter.Ledger       // counts their streams
}

// NewListenerState returns the state of a listener. paused becomes its Paused.
func NewListenerState(name string, paused func(limit string, now time.Duration)) *ListenerState {
	return &ListenerState{
		Name: name, Paused: paused, Refusals: NewRefusals(), Pauses: tally.NewReasons(admissionLimitNames[:]...),
		Spoken: tally.NewReasons(append(firstbytes.Names[:], "other")...), Mirrors: worker.NewMirrorCounts(), Rewrites: filter.NewStreamLedger(),
	}
}

// An admissionReject is a reason to refuse a client of a listener.
type admissionReject uint8

const (
	refusedAddress admissionReject = iota
	refusedDenied
	refusedNoSource
	refusedSourceConnections
	refusedSourceRate
	refusedSources
	refusedHeader
	refusedHello
	refusedPreread
	refusedFirstBytes
	refusedRoute
	refusedFilter
	refusedFilterFailed
	refusedFilterOverload
	refusedUpstream
	refusedTLS
	refusedPostgres
	refusedUnencrypted
	refusedEndpointTLS
	refusedCancelOverload
	refusedPrereadMemory
	refusedSecondHello
	refusedOther
	admissionRejects
)

var admissionRejectNames = [admissionRejects]string{
	"address", "denied", "no_source", "per_source", "per_source_per_second", "sources", "proxy_header", "hello", "preread", "first_bytes", "no_route",
	"filter", "filter_failed", "filter_overload", "upstream", "tls", "postgres", "unencrypted", "endpoint_tls", "cancel_overload", "preread_memory", "second_hello", "other",
}

var admissionCauses = []struct {
	cause error
	as    admissionReject
}{
	{limit.ErrDenied, refusedAddress},
	{limit.ErrDeniedNow, refusedDenied},
	{source.ErrUnknown, refusedNoSource},
	{limit.ErrSourceConnections, refusedSourceConnections},
	{limit.ErrSourceRate, refusedSourceRate},
	{limit.ErrSources, refusedSources},
	{worker.ErrHeaderTimeout, refusedHeader},
	{worker.ErrHeaderEnded, refusedHeader},
	{proxyproto.ErrMissing, refusedHeader},
	{proxyproto.ErrUnexpected, refusedHeader},
	{proxyproto.ErrVersion, refusedHeader},
	{proxyproto.ErrTooLong, refusedHeader},
	{proxyproto.ErrMalformed, refusedHeader},
	{proxyproto.ErrChecksum, refusedHeader},
	{worker.ErrSecondHello, refusedSecondHello}, // before the next ones, which it may wrap
	{clienthello.ErrNotTLS, refusedHello},
	{clienthello.ErrTooLong, refusedHello},
	{clienthello.ErrMalformed, refusedHello},
	{worker.ErrPrereadTimeout, refusedPreread},
	{worker.ErrPrereadEnded, refusedPreread},
	{match.ErrUndecided, refusedFirstBytes},
	{ErrNoRoute, refusedRoute},
	{ErrLoop, refusedRoute},
	{worker.ErrFiltered, refusedFilter},
	{worker.ErrFilterFailed, refusedFilterFailed},
	{worker.ErrFilterOverload, refusedFilterOverload},
	{tlsterm.ErrSessions, refusedTLS},
	{postgres.ErrNotPostgres, refusedPostgres},
	{postgres.ErrMalformed, refusedPostgres},
	{postgres.ErrEarly, refusedPostgres},
	{postgres.ErrAgain, refusedPostgres},
	{worker.ErrNoTLS, refusedUnencrypted},
	{postgres.ErrEndpoint, refusedEndpointTLS},
	{worker.ErrCancelOverload, refusedCancelOverload},
	{worker.ErrPrereadMemory, refusedPrereadMemory},
}

// Reason returns the word under which a listener counts a client that is refused for a cause.
func Reason(cause error) string { return admissionRejectNames[rejectOf(cause)] }

// NewRefusals returns counts for the reasons to refuse a client of a listener.
func NewRefusals() *tally.Reasons { return tally.NewReasons(admissionRejectNames[:]...) }

// Refused counts a client that was refused, by reason. process counts the clients of all listeners, since the process began.
func (state *ListenerState) Refused(cause error, process *tally.Reasons) {
	why := int(rejectOf(cause))
	state.Refusals.Add(why)
	process.Add(why)
}

func rejectOf(cause error) admissionReject {
	as := refusedOther
	var handshake *tlsterm.Error
	switch {
	case errors.As(cause, &handshake) && handshake.Kind == tlsterm.Protocol:
		as = refusedTLS
	case errors.As(cause, new(*UpstreamError)):
		as = refusedUpstream
	case handshake != nil:
		as = refusedTLS
	}
	for _, c := range admissionCauses {
		if errors.Is(cause, c.cause) {
			return c.as
		}
	}
	return as
}

// An admissionToken is kept in a [worker.Client]: its entry in the table of its source, a [limit.Entry], and overLimit.
type admissionToken = uint64

// overLimit says that the client has no place under Connections yet. It is a bit above the bits of every Entry.
const overLimit admissionToken = 1 << 32

// An admission is the [worker.Admitter] of one generation of a listener.
type admission Listener

func (a *admission) NextSlotIn(now int64) time.Duration {
	if a.state.Connections.Full() {
		return 0
	}
	in := a.state.Rate.Until(now)
	if a.cfg.Process != nil {
		in = max(in, a.cfg.Process.Until(now))
	}
	return in
}

// Admit implements [worker.Admitter]. A client that is refused for its source takes nothing from
// others: the source is checked before anything is counted. If the source is known only later,
// AdmitSource takes back the counts. Two loops may both find room for one more client: the second
// client then waits for a place before anything is done for it.
func (a *admission) Admit(c *worker.Client, identified bool, now int64) error {
	state := a.state
	state.Accepted.Add(1)
	if identified {
		if !c.Source().Known() {
			return source.ErrUnknown
		}
		if err := a.source(c, now); err != nil {
			return err
		}
	}
	state.Rate.Spend(now)
	if a.cfg.Process != nil {
		a.cfg.Process.Spend(now)
	}
	if !state.Connections.Take() {
		c.AdmissionToken |= overLimit
	}
	return nil
}

func (a *admission) AdmitSource(c *worker.Client, now int64) error {
	err := a.source(c, now)
	if err == nil {
		return nil
	}
	a.state.Rate.GiveBack(now)
	if a.cfg.Process != nil {
		a.cfg.Process.GiveBack(now)
	}
	if a.state.pausedAt.Load() != 0 {
		a.cfg.Wake()
	}
	return err
}

// source takes the entries of the limits of a client's source, or returns the reason to refuse the client.
func (a *admission) source(c *worker.Client, now int64) error {
	under := (*Listener)(a)
	by := under.ruling(c)
	in, next := by[0], by[1] // other generations than a if there was a reload since the accept
	if in != under {
		if err := in.takes(c); err != nil {
			return err
		}
	}
	if err := in.allows(c); err != nil {
		return err
	}
	if next != nil && next != in {
		if err := next.admits(c); err != nil {
			return err
		}
	}
	sources := a.sources()
	if sources == nil {
		return nil
	}
	entry, err := sources.Admit(c.Source(), now)
	if err != nil {
		return err
	}
	c.AdmissionToken |= admissionToken(entry)
	return nil
}

// sources returns the limits of sources in force; nil: there are none.
func (a *admission) sources() *limit.Sources {
	if l := a.state.current.Load(); l != nil {
		return l.cfg.Sources
	}
	return a.cfg.Sources
}

// Uncounted implements [worker.Admitter]: a limit of sources that is new counts present sessions, even beyond it.
func (a *admission) Uncounted(token admissionToken) func(source.Source, int64) admissionToken {
	sources := a.sources()
	if sources == nil || limit.Entry(token) != 0 {
		return nil
	}
	return func(from source.Source, now int64) admissionToken {
		return token | admissionToken(sources.Adopt(from, now))
	}
}

func (a *admission) Released(token admissionToken) {
	state := a.state
	if entry := limit.Entry(token); entry != 0 {
		cmp.Or(a.cfg.Sources, state.sources.Load()).Leave(entry)
	}
	if token&overLimit != 0 {
		return
	}
	if state.Connections.Give() {
		state.queue.next()
		a.cfg.Wake()
	}
}

// Limit sets how many clients may come in at once and per second; 0 means no limit.
func (state *ListenerState) Limit(connections int64, perSecond float64) {
	state.Connections.Set(connections)
	state.Rate.Set(perSecond)
	state.queue.next() // there may be room now for clients beyond the limit before
}

// An admissionLimit is a limit at which accepting pauses: further clients wait in the kernel's
// queue.
type admissionLimit uint8

const (
	unlimited admissionLimit = iota
	atConnections
	atRate
	atProcessRate
	doorLimits
)

// admissionLimitNames are the keys of the limits in the configuration.
var admissionLimitNames = [doorLimits]string{"", "connections", "per_second", "process per_second"}

// pauses notes that accepting pauses at a limit, and reports whether the pause is new. Loops
// that notice it at the same time may count it twice.
func (state *ListenerState) pauses(at admissionLimit) bool {
	if admissionLimit(state.pausedAt.Load()) == at || admissionLimit(state.pausedAt.Swap(uint32(at))) == at {
		return false
	}
	state.Pauses.Add(int(at))
	return true
}

// full returns the limit at which accepting pauses at a time.
func (state *ListenerState) full(process *limit.Rate, now int64) admissionLimit {
	switch {
	case state.Connections.Full():
		return atConnections
	case state.Rate.Until(now) > 0:
		return atRate
	case process != nil && process.Until(now) > 0:
		return atProcessRate
	}
	return unlimited
}

// PausedAt returns the key of the limit at which accepting is paused at a time, or "" if it is not paused. process is the
// limit of all listeners together, or nil.
func (state *ListenerState) PausedAt(process *limit.Rate, now int64) string {
	return admissionLimitNames[state.full(process, now)]
}

func (a *admission) CanAccept(now int64) error {
	state := a.state
	at := state.full(a.cfg.Process, now)
	if at == unlimited {
		if state.pausedAt.Load() != 0 {
			state.pausedAt.Store(0)
		}
		return nil
	}
	if state.pauses(at) && state.Paused != nil {
		state.Paused(admissionLimitNames[at], time.Duration(now))
	}
	if at == atConnections {
		return limit.ErrConnections
	}
	return limit.ErrRate
}
