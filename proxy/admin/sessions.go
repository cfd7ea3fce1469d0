package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Session is a client that is served, at the moment at which it was listed.
type Session struct {
	// ID names it in later requests. A client keeps its ID until it has an endpoint, and its session until it
	// ends.
	ID       string `json:"id"`
	Client   string `json:"client"`             // its source, by its PROXY header if there was one
	Listener string `json:"listener"`           // where it came in
	Upstream string `json:"upstream,omitempty"` // "" while it has no endpoint, as with Endpoint and Name
	Endpoint string `json:"endpoint,omitempty"` // its address
	Name     string `json:"name,omitempty"`     // of the endpoint
	// EndpointLocal is this machine's address of the connection to the endpoint; "": not known, or not of TCP.
	EndpointLocal string `json:"endpoint_local,omitempty"`
	// State is one of preread, dialing, waiting, responding, joined, client-ended (its end of
	// file was passed on), endpoint-ended, ending.
	State string `json:"state"`
	Loop  int    `json:"loop"`   // index of the event loop; -1: on a goroutine
	AgeUs int64  `json:"age_us"` // since the client was accepted, in microseconds
	// IdleUs is the time without a byte, or since the state has changed; nil: unknown.
	IdleUs *int64 `json:"idle_us,omitempty"`
	Bytes  Bytes  `json:"bytes"`
	// Engine is lane if the session has left user space; else splice, copy or both, by the bytes so far; "": there were
	// none.
	Engine string `json:"engine,omitempty"`
	// Adopted says that the session comes from an earlier process. Where the configuration no longer
	// has its listener, upstream or endpoint, they are [UnknownName], and its name is "".
	Adopted bool `json:"adopted,omitempty"`
	// Verdict is what has limited it since its beginning; "": that was not asked for.
	Verdict string `json:"verdict,omitempty"`
}

// Sessions is a list of sessions.
type Sessions struct {
	Sessions []Session `json:"sessions"`       // in the order that was asked for
	More     bool      `json:"more,omitempty"` // there are more than those
}

// A SessionList is the answer of [Balancer].Sessions.
type SessionList struct {
	Sessions iter.Seq[Session] // once
	// More reports, after that, whether there are more than those.
	More func() bool
}

func (s *Server) sessions(ctx context.Context, a *arguments) (any, error) {
	var q SessionQuery
	var o SessionOrder
	a.into(&q)
	a.into(&o)
	list, err := s.cfg.Balancer.Sessions(ctx, q, o)
	if err != nil {
		return nil, err
	}
	return sessionStream(list), nil
}

// A sessionStream is encoded as Sessions, without a list in memory. If its client reads slowly, the
// sessions are listed as slowly.
type sessionStream SessionList

// encode writes the sessions, one a line, until a write fails.
func (s sessionStream) encode(out io.Writer) {
	w := bufio.NewWriterSize(out, 32<<10)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_, err := w.WriteString("{\n  \"sessions\": [")
	n, last := 0, "]"
	for one := range s.Sessions {
		if err != nil {
			break
		}
		_, err = w.WriteString([]string{"\n    ", "    ,"}[min(n, 1)])
		err = errors.Join(err, e.Encode(&one))
		n, last = n+1, "  ]"
	}
	_, _ = w.WriteString(last)
	if s.More() {
		_, _ = w.WriteString(",\n  \"more\": true")
	}
	_, _ = w.WriteString("\n}\n")
	_ = w.Flush() // the client may have closed the connection
}

// Sessions returns the clients that are served and that q selects. Each one is in the list at most
// once: all clients that stay during the listing, and some that come or leave meanwhile.
func (c *Client) Sessions(ctx context.Context, q SessionQuery, o SessionOrder) (Sessions, error) {
	return get[Sessions](ctx, c, "/v1/sessions", append(pairs(&q), pairs(&o)...)...)
}

// A SessionQuery selects clients that are served. All that is set must be true of a client.
type SessionQuery struct {
	// ID is the ID of a client, as in [Session].
	ID string `param:"id"`
	// Listener and Upstream are names, or [UnknownName] for adopted sessions if that is not known. Endpoint is a name or an address.
	Listener string `param:"listener"`
	Upstream string `param:"upstream"`
	Endpoint string `param:"endpoint"`
	// Source is an address, a prefix, unix, unix:uid=N or unix:gid=N.
	Source string `param:"source"`
	// Older is the least age, Idle the least time without a byte, and Bytes the least number of bytes in
	// both directions; 0: any.
	Older time.Duration `param:"older"`
	Idle  time.Duration `param:"idle"`
	Bytes int64         `param:"bytes"`
	// State is a state of [Session].
	State string `param:"state"`
	// Verdict selects sessions by what has limited them since their beginning, a verdict of [Why];
	// [AnyVerdict] selects all sessions, with their verdicts. Each session that the rest selects takes two
	// system calls then.
	Verdict string `param:"verdict"`
	// Engine is [EngineLane] for sessions that have left user space; "": any.
	Engine string `param:"engine"`
}

// UnknownName selects adopted sessions of a listener, or upstream, that the file no longer has. No
// part of a file can have such a name.
const UnknownName = "@unknown"

// EngineLane is the engine of sessions that have left user space.
const EngineLane = "lane"

// AnyVerdict selects all sessions, and finds out their verdicts.
const AnyVerdict = "any"

// Selects reports whether q leaves any client out.
func (q *SessionQuery) Selects() bool {
	all := SessionQuery{Verdict: AnyVerdict}
	return *q != SessionQuery{} && *q != all
}

// String returns q in one line, as words of a command line.
func (q *SessionQuery) String() string {
	values := given(pairs(q)...)
	var words []string
	for _, name := range sessionFilters {
		if v := values.Get(name); v != "" {
			words = append(words, "--"+name+" "+v)
		}
	}
	if len(words) == 0 {
		return "--all"
	}
	return strings.Join(words, " ")
}

// sessionFilters are the parameters of a SessionQuery.
var sessionFilters = func() (names []string) {
	inQuery(new(SessionQuery), func(name string, _ reflect.Value) { names = append(names, name) })
	return names
}()

// A SessionOrder sorts and bounds a list of clients. The zero value lists all, as they are found.
type SessionOrder struct {
	By string `param:"sort"` // one of SessionOrders; empty: as they are found
	// Top is the length of the list; 0: all if By is empty, and otherwise MaxTop.
	Top int `param:"top"`
}

// SessionOrders are the orders: numbers begin with the largest, names with the first.
var SessionOrders = []string{"age", "idle", "bytes", "in", "out", "client", "listener", "upstream", "endpoint", "state", "verdict"}

// MaxTop is the longest list that is sorted.
const MaxTop = 10_000

// StatesWithoutEndpoint are the states of clients without a session yet: there is nothing to end.
var StatesWithoutEndpoint = []string{"preread", "dialing", "waiting", "responding"}

// sessionStates are the states of [Session], and sessionVerdicts the verdicts of [Why].
var (
	sessionStates   = append(slices.Clip(StatesWithoutEndpoint), "joined", "client-ended", "endpoint-ended", "ending")
	sessionVerdicts = []string{"client", "client_network", "endpoint", "endpoint_network", "proxy", "limit", "idle", "unknown", AnyVerdict}
)

// orderly are times with each unit once, the larger ones first: 1h1h may be meant as 1h1m.
var orderly = regexp.MustCompile(`^[+-]?([0-9.]+h)?([0-9.]+m)?([0-9.]+s)?([0-9.]+ms)?([0-9.]+[uµμ]s)?([0-9.]+ns)?$|^[+-]?0$`)

// sizeUnits are the units of ParseSize, as shifts.
var sizeUnits = map[string]int{"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}

// ParseSize reads a number of bytes: 65536, 64KiB, 1MiB, 2GiB.
func ParseSize(text string) (int64, error) {
	digits, shift := text, 0
	for unit, by := range sizeUnits {
		if number, ok := strings.CutSuffix(text, unit); ok {
			digits, shift = number, by
		}
	}
	n, err := strconv.ParseUint(digits, 10, 62-shift)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of bytes: write 65536, 64KiB, 1MiB or 2GiB", text)
	}
	return int64(n) << shift, nil
}

// ErrEndings is wrapped by the error of an end of sessions when too many such ends are under way.
var ErrEndings = errors.New("too many requests to end sessions are under way")

// An EndQuery selects sessions, and says how they are ended. Clients that have no endpoint yet are not
// among them.
type EndQuery struct {
	SessionQuery
	// All selects all sessions; otherwise the SessionQuery must select some.
	All bool `param:"all"`
	// Now ends them whether or not bytes are on their way. Otherwise each goes on until it is quiet: no byte has
	// moved for the time of Quiet, none is held, unread or unacknowledged, and the client was not the last to send.
	Now bool `param:"now"`
	// Quiet is that time. Nothing shows whether an answer is complete, so choose a time longer than
	// the pauses within an answer. 0: [DefaultQuiet].
	Quiet time.Duration `param:"quiet"`
	// Over spreads the ends over a time, at random; 0: as soon as possible.
	Over time.Duration `param:"over"`
	// Grace is how long a session may take to become quiet. Then it goes on, or is ended anyway with
	// ThenReset. 0: [DefaultGrace].
	Grace     time.Duration `param:"grace"`
	ThenReset bool          `param:"then_reset"`
	// DryRun only counts.
	DryRun bool `param:"dry_run"`
}

// Bounds of an [EndQuery].
const (
	DefaultGrace = 30 * time.Second
	DefaultQuiet = 10 * time.Second
	LeastQuiet   = time.Second
	MaxEnd       = 24 * time.Hour // of Over, Grace and Quiet
	// EndWait is how long the answer waits for the last end.
	EndWait = 40 * time.Second
)

// Ended counts sessions that an [EndQuery] has selected. Touched is the sum of Ended, Cut, Other, Left, Waiting, Kept
// and Stopped; after a dry run these are 0.
type Ended struct {
	Touched int64 `json:"touched"` // selected
	Ended   int64 `json:"ended"`   // by it: once they were quiet, or at once with Now
	Cut     int64 `json:"cut"`     // were not quiet in time, and were ended all the same, as ThenReset says
	Other   int64 `json:"other"`   // had been ended by another request before
	Left    int64 `json:"left"`    // had ended by themselves before it was their turn
	Waiting int64 `json:"waiting"` // are not quiet, or it is not their turn yet
	// Kept were not quiet in time, and go on.
	Kept int64 `json:"kept"`
	// Stopped go on, for the request was called off.
	Stopped int64 `json:"stopped"`
	// WithoutEndpoint are clients that have no endpoint yet: they are not counted above, and are left
	// alone.
	WithoutEndpoint int64 `json:"without_endpoint"`
	// Unanswering counts the sessions with an endpoint that was down, ejected or silent when they were
	// selected. As long as it is, they are not quiet.
	Unanswering int64 `json:"unanswering"`
	// QuietUs is how long each had to move no byte; 0: they are ended at once.
	QuietUs int64 `json:"quiet_us"`
	// DryRun says that the sessions were only counted.
	DryRun bool `json:"dry_run,omitzero"`
	// Done says that nothing more happens, as after a dry run. Otherwise the rest is ended until Until, and the log has the numbers
	// then.
	Done  bool      `json:"done"`
	Until time.Time `json:"until,omitzero"`
}

func (s *Server) endSessions(ctx context.Context, a *arguments) (any, error) {
	var q EndQuery
	a.into(&q)
	switch {
	case q.Selects() == q.All:
		return nil, fmt.Errorf("%w: say which sessions: use at least one of %s, or only all=true", ErrInvalid, strings.Join(sessionFilters, ", "))
	case slices.Contains(StatesWithoutEndpoint, q.State):
		return nil, fmt.Errorf("%w: state: clients that are %q have no session yet: to refuse these clients, deny their source (POST /v1/deny/add)", ErrInvalid, q.State)
	case q.Now && (q.Grace != 0 || q.Quiet != 0 || q.ThenReset):
		return nil, fmt.Errorf("%w: grace, quiet and then_reset cannot be used with now: leave out these parameters, or now", ErrInvalid)
	case q.Quiet != 0 && q.Quiet < LeastQuiet:
		return nil, fmt.Errorf("%w: quiet: %v: write %v or more", ErrInvalid, q.Quiet, LeastQuiet)
	case q.Over > MaxEnd, q.Grace > MaxEnd, q.Quiet > MaxEnd:
		return nil, fmt.Errorf("%w: over, grace, quiet: write at most %v", ErrInvalid, MaxEnd)
	}
	return s.cfg.Balancer.EndSessions(ctx, q, a.by)
}

// EndSessions ends sessions. It returns when the last one has ended, or after [EndWait].
func (c *Client) EndSessions(ctx context.Context, q EndQuery) (Ended, error) {
	return post[Ended](ctx, c, "/v1/sessions/end", pairs(&q)...)
}

// Stopped is the result of [Balancer].StopEnding.
type Stopped struct {
	Requests int   `json:"requests"` // that were under way
	Kept     int64 `json:"kept"`     // sessions that these had not ended yet, and that go on
}

// StopEnding calls off the ends of sessions that are under way.
func (c *Client) StopEnding(ctx context.Context) (Stopped, error) {
	return post[Stopped](ctx, c, "/v1/sessions/keep")
}

// A SourceQuery selects and sorts sources.
type SourceQuery struct {
	By  string `param:"by"`  // one of SourceOrders; empty: the first
	Top int    `param:"top"` // the length of the list, up to MaxTop; 0: DefaultTop
	// Prefix4 and Prefix6 are the bits of an address that make one source; 0: 32 and 64.
	Prefix4 int `param:"prefix"`
	Prefix6 int `param:"prefix6"`
}

// SourceOrders are the orders, the largest number first.
var SourceOrders = []string{"connections", "rate", "refusals", "bytes"}

// DefaultTop is how many sources are listed.
const DefaultTop = 20

// A Source is the clients of an address, a prefix, or a user of unix sockets.
type Source struct {
	Source      string  `json:"source"`      // an address, a prefix or a user, as a query takes it
	Connections int64   `json:"connections"` // now
	PerSecond   float64 `json:"per_second"`  // new connections, of the last ten seconds
	Refused     int64   `json:"refused"`     // clients, of the last minute
	Bytes       int64   `json:"bytes"`       // of the connections that there are
}

// Sources is a list of sources.
type Sources struct {
	Sources []Source `json:"sources"` // the largest number first
	Known   int      `json:"known"`   // the number of sources that this list was chosen from
	// Beyond counts connections, arrivals and refusals of sources for which there was no room.
	Beyond int64 `json:"beyond,omitempty"`
}

func (s *Server) sources(ctx context.Context, a *arguments) (any, error) {
	var q SourceQuery
	a.into(&q)
	if q.Prefix4 > 32 || q.Prefix6 > 128 {
		return nil, fmt.Errorf("%w: prefixes have at most 32 and 128 bits", ErrInvalid)
	}
	return s.cfg.Balancer.Sources(ctx, q)
}

// Sources returns the sources with the most of something.
func (c *Client) Sources(ctx context.Context, q SourceQuery) (Sources, error) {
	return get[Sources](ctx, c, "/v1/sources", pairs(&q)...)
}
