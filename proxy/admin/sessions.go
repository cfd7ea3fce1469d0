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

	"github.com/penstock/penstock/proxy/display"
)

// A Session is a connected client at the moment of the list.
type Session struct {
	// ID identifies the client in later requests. It changes once the client has an endpoint, and then stays until the
	// session ends.
	ID string `json:"id"`
	// LogID is the id of the session in the session log and in traces. Left out if it has no record there.
	LogID    string `json:"log_id,omitempty"`
	Client   string `json:"client"`             // source of the client, from its PROXY header if it sent one
	Listener string `json:"listener"`           // listener that accepted the client
	Upstream string `json:"upstream,omitempty"` // upstream; left out without an endpoint, as Endpoint and Name
	Endpoint string `json:"endpoint,omitempty"` // address of the endpoint
	Name     string `json:"name,omitempty"`     // name of the endpoint
	// EndpointLocal is this machine's address of the connection to the endpoint. Left out if unknown, or without TCP.
	EndpointLocal string `json:"endpoint_local,omitempty"`
	// State is preread, dialing, waiting, responding, joined, client-ended (the client's end of file was passed on),
	// endpoint-ended or ending.
	State string `json:"state"`
	Loop  int    `json:"loop"`   // index of the event loop; -1 for a goroutine
	AgeUs int64  `json:"age_us"` // microseconds since the client was joined, or else accepted
	// IdleUs is the time since the last byte or change of state. Left out if unknown.
	IdleUs *int64 `json:"idle_us,omitempty"`
	Bytes  Bytes  `json:"bytes"`
	// Engine is lane if the session has left user space. Otherwise it says how the bytes were moved so far: splice,
	// copy or both. Left out without bytes.
	Engine string `json:"engine,omitempty"`
	// Adopted says that the session comes from an earlier process. If the configuration no longer has its listener or
	// upstream, they are [UnknownName].
	Adopted bool `json:"adopted,omitempty"`
	// Verdict is what has slowed the session down since its start. Left out if the request did not ask for verdicts.
	Verdict string `json:"verdict,omitempty"`
}

// Sessions is a list of sessions.
type Sessions struct {
	Sessions []Session `json:"sessions"`       // sessions in the requested order
	More     bool      `json:"more,omitempty"` // there are more sessions
}

// A SessionList is the answer of [Balancer].Sessions.
type SessionList struct {
	Sessions iter.Seq[Session] // may be ranged over once
	// More reports afterwards whether there are more sessions.
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

// A sessionStream is encoded as Sessions, without a list in memory. If its client reads slowly, the sessions are listed
// slowly.
type sessionStream SessionList

// encode writes the sessions, one per line, until a write fails.
func (s sessionStream) encode(out io.Writer) {
	w := bufio.NewWriterSize(out, 32<<10)
	e := json.NewEncoder(display.NewWriter(w)) // in front of w, which cuts characters
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

// errLong means that an answer is too long to come from a Penstock.
var errLong = errors.New("it is too long")

// read reads a list one session after the other. If another program answers, it reads only a bounded part.
func (s *Sessions) read(body io.Reader) error {
	r := &io.LimitedReader{R: body, N: maxSession}
	err := s.decode(json.NewDecoder(r), func() { r.N = maxSession })
	if r.N == 0 && err != nil {
		return errLong
	}
	return err
}

// decode calls next before each session.
func (s *Sessions) decode(d *json.Decoder, next func()) error {
	if begin, err := d.Token(); err != nil {
		return err
	} else if begin != json.Delim('{') {
		return errors.New("it is no object")
	}
	var seen bool
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		if name != "sessions" {
			var value json.RawMessage
			if err := d.Decode(&value); err != nil {
				return err
			}
			s.More = s.More || name == "more" && string(value) == "true"
			continue
		}
		if begin, err := d.Token(); err != nil {
			return err
		} else if begin != json.Delim('[') {
			return errors.New("it has no list of sessions")
		}
		for seen, s.Sessions = true, []Session{}; d.More(); {
			var one Session
			if next(); len(s.Sessions) == maxList {
				return errLong
			}
			if err := d.Decode(&one); err != nil {
				return err
			}
			s.Sessions = append(s.Sessions, one)
		}
		next()
		if _, err := d.Token(); err != nil { // the end of the list
			return err
		}
	}
	if !seen {
		return fmt.Errorf("%w: it has no sessions: another program listens there", ErrStranger)
	}
	_, err := d.Token() // the end of the object
	return err
}

// Sessions returns the connected clients that q selects, each at most once. Clients that come or leave during the
// listing may be missing.
func (c *Client) Sessions(ctx context.Context, q SessionQuery, o SessionOrder) (Sessions, error) {
	return get[Sessions](ctx, c, "/v1/sessions", append(pairs(&q), pairs(&o)...)...)
}

// A SessionQuery selects connected clients. A client must meet every condition that is set.
type SessionQuery struct {
	// ID is the ID or the LogID of a client, as in [Session].
	ID string `param:"id"`
	// Listener and Upstream are names, or [UnknownName] for adopted sessions without a known one. Endpoint is a name or
	// an address.
	Listener string `param:"listener"`
	Upstream string `param:"upstream"`
	Endpoint string `param:"endpoint"`
	// Source is an address, a prefix, unix, unix:uid=N or unix:gid=N.
	Source string `param:"source"`
	// Older is the least age, Idle the least time without a byte, and Bytes the least number of bytes in both
	// directions. 0 selects any.
	Older time.Duration `param:"older"`
	Idle  time.Duration `param:"idle"`
	Bytes int64         `param:"bytes"`
	// State is a state of [Session].
	State string `param:"state"`
	// Verdict selects sessions by what has slowed them down since their start, a verdict of [Why]. [AnyVerdict] selects
	// all sessions, and adds their verdicts. A verdict costs two system calls for each session that the other
	// conditions select.
	Verdict string `param:"verdict"`
	// Engine is [EngineLane] for sessions that have left user space, or "" for any.
	Engine string `param:"engine"`
}

// UnknownName selects adopted sessions of a listener or upstream that the file no longer has. Nothing in a file can
// have this name.
const UnknownName = "@unknown"

// EngineLane is the engine of sessions that have left user space.
const EngineLane = "lane"

// AnyVerdict selects all sessions, and adds their verdicts.
const AnyVerdict = "any"

// Selects reports whether q leaves any client out.
func (q *SessionQuery) Selects() bool {
	all := SessionQuery{Verdict: AnyVerdict}
	return *q != SessionQuery{} && *q != all
}

// String returns q as flags of a command line.
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

// A SessionOrder sorts and limits a list of clients. The zero value lists all clients in no order.
type SessionOrder struct {
	By string `param:"sort"` // one of SessionOrders, or "" for no order
	// Top is the length of the list. 0 means all clients if By is empty, and otherwise MaxTop.
	Top int `param:"top"`
}

// SessionOrders are the columns to sort by: numbers from large to small, names by the alphabet.
var SessionOrders = []string{"age", "idle", "bytes", "in", "out", "client", "listener", "upstream", "endpoint", "state", "verdict"}

// MaxTop is the longest sorted list.
const MaxTop = 10_000

// StatesWithoutEndpoint are the states of clients that have no session yet, so there is nothing to end.
var StatesWithoutEndpoint = []string{"preread", "dialing", "waiting", "responding"}

// sessionStates are the states of [Session], and sessionVerdicts the verdicts of [Why].
var (
	sessionStates   = append(slices.Clip(StatesWithoutEndpoint), "joined", "client-ended", "endpoint-ended", "ending")
	sessionVerdicts = []string{"client", "client_network", "endpoint", "endpoint_network", "proxy", "limit", "idle", "unknown", AnyVerdict}
)

// orderly matches times with each unit at most once, the larger unit first: 1h1h may be meant as 1h1m.
var orderly = regexp.MustCompile(`^[+-]?([0-9.]+h)?([0-9.]+m)?([0-9.]+s)?([0-9.]+ms)?([0-9.]+[uµμ]s)?([0-9.]+ns)?$|^[+-]?0$`)

// sizeUnits are the units of ParseSize, as powers of two.
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

// ErrEndings is wrapped by the error of a request to end sessions while too many such requests are under way.
var ErrEndings = errors.New("too many requests to end sessions are under way")

// An EndQuery selects sessions, and says how to end them. It does not select clients that have no endpoint yet.
type EndQuery struct {
	SessionQuery
	// All selects all sessions. Without All, the SessionQuery must select some.
	All bool `param:"all"`
	// Now ends sessions even in the middle of a transfer. Without Now, each continues until it is quiet: no byte has
	// moved for the time in Quiet, none is held, unread or unacknowledged, and the last byte did not come from the
	// client.
	Now bool `param:"now"`
	// Quiet is this time. Nothing shows whether an answer is complete, so choose a time longer than the pauses within
	// an answer. 0 means [DefaultQuiet].
	Quiet time.Duration `param:"quiet"`
	// Over spreads the ends randomly over a time. With 0, sessions end as soon as possible.
	Over time.Duration `param:"over"`
	// Grace is how long a session may take to become quiet. After that it continues or, with ThenReset, is reset. 0
	// means [DefaultGrace].
	Grace     time.Duration `param:"grace"`
	ThenReset bool          `param:"then_reset"`
	// DryRun only counts the sessions.
	DryRun bool `param:"dry_run"`
}

// Limits of an [EndQuery].
const (
	DefaultGrace = 30 * time.Second
	DefaultQuiet = 10 * time.Second
	LeastQuiet   = time.Second
	MaxEnd       = 24 * time.Hour // of Over, Grace and Quiet
	// EndWait is how long the answer waits for the last session to end.
	EndWait = 40 * time.Second
)

// Ended counts the sessions that an [EndQuery] has selected. Touched is the sum of Ended, Cut, Other, Left, Waiting,
// Kept and Stopped. After a dry run these are 0.
type Ended struct {
	Touched int64 `json:"touched"` // selected sessions
	Ended   int64 `json:"ended"`   // sessions that it ended: once they were quiet, or at once
	Cut     int64 `json:"cut"`     // sessions that were reset, because they were not quiet in time
	Other   int64 `json:"other"`   // sessions that another request had ended before
	Left    int64 `json:"left"`    // sessions that had ended by themselves before their turn
	Waiting int64 `json:"waiting"` // sessions that are not quiet, or that still wait for their turn
	// Kept sessions were not quiet in time, and continue.
	Kept int64 `json:"kept"`
	// Stopped sessions continue, because the request was stopped.
	Stopped int64 `json:"stopped"`
	// WithoutEndpoint counts clients that have no endpoint yet. They do not count above, and stay connected.
	WithoutEndpoint int64 `json:"without_endpoint"`
	// Unanswering counts the sessions with an endpoint that was down, ejected or silent when they were selected. As
	// long as it is, these sessions are not quiet.
	Unanswering int64 `json:"unanswering"`
	// QuietUs is how long no byte must have moved in a quiet session. 0 means that sessions are ended at once.
	QuietUs int64 `json:"quiet_us"`
	// DryRun says that the sessions were only counted.
	DryRun bool `json:"dry_run,omitzero"`
	// Done says that everything is done, as after a dry run. Otherwise the remaining sessions are ended before Until,
	// and then the log has the numbers.
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
		return nil, fmt.Errorf("%w: quiet: %v is too short: write %v or more", ErrInvalid, q.Quiet, LeastQuiet)
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
	Requests int   `json:"requests"` // requests that were stopped
	Kept     int64 `json:"kept"`     // sessions that they had not ended yet, and that continue
}

// StopEnding stops all requests to end sessions.
func (c *Client) StopEnding(ctx context.Context) (Stopped, error) {
	return post[Stopped](ctx, c, "/v1/sessions/keep")
}

// A SourceQuery selects and sorts sources.
type SourceQuery struct {
	By  string `param:"by"`  // one of SourceOrders; empty means the first
	Top int    `param:"top"` // length of the list, up to MaxTop; 0 means DefaultTop
	// Addresses that share this many leading bits count as one source. 0 means 32 and 64.
	Prefix4 int `param:"prefix"`
	Prefix6 int `param:"prefix6"`
}

// SourceOrders are the columns to sort by, from large to small.
var SourceOrders = []string{"connections", "rate", "refusals", "bytes"}

// DefaultTop is the default length of a list of sources.
const DefaultTop = 20

// A Source counts the clients from an address or a prefix, or of a user of unix sockets.
type Source struct {
	Source      string  `json:"source"`      // address, prefix or user, as in a query
	Connections int64   `json:"connections"` // present connections
	PerSecond   float64 `json:"per_second"`  // new connections per second, over the last ten seconds
	Refused     int64   `json:"refused"`     // clients refused within the last minute
	Bytes       int64   `json:"bytes"`       // bytes of the present connections
}

// Sources is a list of sources.
type Sources struct {
	Sources []Source `json:"sources"` // sources, the largest number first
	Known   int      `json:"known"`   // number of known sources
	// Beyond counts connections, arrivals and refusals of sources that were not tracked for lack of room.
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

// Sources returns the sources with the most connections, new connections, refusals or bytes.
func (c *Client) Sources(ctx context.Context, q SourceQuery) (Sources, error) {
	return get[Sources](ctx, c, "/v1/sources", pairs(&q)...)
}
