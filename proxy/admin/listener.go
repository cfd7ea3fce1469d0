package admin

import (
	"context"
	"time"

	"github.com/penstock/penstock/proxy/internal/keypair"
	"github.com/penstock/penstock/proxy/internal/tally"
)

// A Listener is the status of a listener.
type Listener struct {
	Name      string   `json:"name"`               // name in the file
	Addresses []string `json:"addresses"`          // addresses, with the ports that the kernel chose
	Binds     []Bind   `json:"binds,omitempty"`    // bind in the file
	State     State    `json:"state"`              // serving, paused or draining
	FastOpen  bool     `json:"fastopen,omitempty"` // socket.fastopen in the file
	// Congestion is the congestion control of clients' connections. Left out for the system's default, or if the
	// listener has only unix sockets.
	Congestion *Congestion `json:"congestion,omitempty"`
	// DrainedByHand means that this API has drained the listener. A reload ends this.
	DrainedByHand bool `json:"drained_by_hand,omitempty"`
	// RefusesAll says why the listener's own rules refuse every client. Left out if they accept some.
	RefusesAll string `json:"refuses_all,omitempty"`
	// DeniedByHand has the sources that are denied by hand at this listener. Left out if there are none.
	DeniedByHand *ListenerDenials `json:"denied_by_hand,omitempty"`
	// PausedAt is the limit at which accepting is paused: connections, per_second or, for all listeners together,
	// process per_second. More clients wait in the kernel's queue.
	PausedAt string `json:"paused_at,omitempty"`
	// Times that accepting has paused at a limit: connections, per_second, or process per_second.
	Pauses      map[string]int64 `json:"pauses,omitempty" metric:"pauses_total,limit"`
	Connections Connections      `json:"connections" metric:""`
	Bytes       Bytes            `json:"bytes"`
	Reasons     map[string]int64 `json:"refused_by,omitempty"` // refused clients by reason
	// Clients by protocol, if routes depend on their first bytes (docs/first-bytes.md).
	Protocols  map[string]int64 `json:"protocols,omitempty" metric:"protocol_clients_total,protocol"`
	Handshakes *Handshakes      `json:"handshakes,omitempty"` // handshakes with clients; left out if TLS is not terminated here
	Queues     []Queue          `json:"accept_queues"`        // accept queues of the listener's sockets
	// Certificates are the certificates shown to clients.
	Certificates []Certificate `json:"certificates,omitempty"`
	// AuthoritiesRefused says why the new contents of the client_ca file are not used, and the old contents still are.
	// Left out if the present contents are used, or there is no such file.
	AuthoritiesRefused string  `json:"authorities_refused,omitempty"`
	Routes             []Route `json:"routes,omitempty"` // routes in their order; the default route is the last
	// Limited has the seconds of ended sessions by verdict, the cause that limited them. Only verdicts that occurred.
	// Sessions that were too short for a verdict do not count.
	Limited map[string]float64 `json:"limited_seconds,omitempty"`
	// Mirrors describes the copies of sessions that other upstreams get. Left out if there are none.
	Mirrors *Mirrors `json:"mirrors,omitempty" metric:"penstock_mirror_"`
	// Rewrites counts the sessions with a rewritten direction. Left out if nothing is rewritten.
	Rewrites *Rewrites `json:"rewrites,omitempty" metric:"penstock_rewrite_"`
	// Filters are the modules that decide about clients.
	Filters []Filter `json:"filters,omitempty"`
	// Cancels counts the requests to cancel a query. Left out unless the listener speaks PostgreSQL.
	Cancels *Cancels `json:"cancel_requests,omitempty" metric:""`
}

// A Bind is an address of a listener, or all sockets that systemd has passed under a name.
type Bind struct {
	Bind   string `json:"bind"`   // bind in the file
	Active int64  `json:"active"` // connections accepted at this address
}

// A Congestion is the congestion control that the file names, and the congestion control that the sockets have.
type Congestion struct {
	Configured string `json:"configured"` // congestion control in the file
	// Used is what the kernel reports for a listening socket, or for a new socket of the kind that connects to
	// endpoints. "" if unknown.
	Used string `json:"used"`
	// Error says why Used is not Configured.
	Error string `json:"error,omitempty"`
	// Refused counts the connections to endpoints for which the kernel has refused the configured control, so that they
	// have the system's default.
	Refused int64 `json:"refused,omitempty"`
}

// A Queue is the accept queue of a listening socket: connections that the kernel has established, and that the process
// has not accepted yet.
type Queue struct {
	Address string `json:"address"` // address of the socket
	// Gone means that the path of a unix socket was removed, or leads to another file: no client finds the socket.
	Gone   bool  `json:"gone,omitempty"`
	Known  bool  `json:"known"`  // the kernel reports the queue's length
	Length int64 `json:"length"` // present length; 0 if unknown
	Most   int64 `json:"most"`   // length at which the queue overflows: more clients must try again
	// Dropped counts the overflows, and DroppedLastMinute the overflows within about the last minute. Both are up to a
	// second old, and 0 if unknown: the kernel does not count overflows for Multipath TCP and unix sockets.
	Dropped           int64 `json:"dropped"`
	DroppedLastMinute int64 `json:"dropped_last_minute"`
	DroppedKnown      bool  `json:"dropped_known"` // the overflows are known
}

// A Certificate is a certificate that is shown to peers.
type Certificate struct {
	Path string    `json:"path"` // file with the certificate
	From time.Time `json:"from"` // start of its validity
	Ends time.Time `json:"ends"` // end of its validity
	// Refused says why the new contents of the files are not used, and the old contents still are. Left out if the
	// present contents are used.
	Refused string `json:"refused,omitempty"`
}

// expiresSoon is how long before its end a certificate becomes a problem, unless a fifth of its lifetime is shorter.
const expiresSoon = 14 * 24 * time.Hour

// Due returns when the status begins to have the problem certificate_expires.
func (c *Certificate) Due() time.Time { return c.Ends.Add(-min(expiresSoon, c.Ends.Sub(c.From)/5)) }

// CertificatesOf returns the certificate of one of the process's own addresses, or nil without a certificate.
func CertificatesOf(p *keypair.Pair) []Certificate {
	if p == nil {
		return nil
	}
	path, now, refused := p.State()
	c := Certificate{Path: path, From: now.Leaf.NotBefore, Ends: now.Leaf.NotAfter}
	if refused != nil {
		c.Refused = refused.Error()
	}
	return []Certificate{c}
}

// A Route is the destination of a listener's clients.
type Route struct {
	Match string             `json:"match,omitempty"` // conditions in the file; "" for the default route
	To    map[string]float64 `json:"to"`              // percentages by upstream
}

// A Filter is a module that decides about a listener's clients, see docs/filters.md. Its counts continue if a reload
// loads another file under the same name.
type Filter struct {
	Name string `json:"name"` // key name in the file, or the name of the module's file
	File string `json:"file"` // file of the module
	// Upstreams to which the module may send clients.
	Upstreams []string `json:"upstreams,omitempty"`
	// Engine is compiler or interpreter. It is interpreter if memory may not be made executable, and until a large
	// module has been compiled.
	Engine string `json:"engine"`
	// Calls counts the calls of the module, and TimeUs their microseconds.
	Calls  int64 `json:"calls"`
	TimeUs int64 `json:"time_us"`
	// Answers counts calls by answer: allow, deny, route, next, more or overload. A failed call counts as the answer
	// that on_error gives, and in Failures by reason: trap, timeout, memory, stack, exit, start or answer.
	Answers  map[string]int64 `json:"answers,omitempty"`
	Failures map[string]int64 `json:"failures,omitempty"`
	// FailedLastMinute counts the failed calls within about the last minute.
	FailedLastMinute int64 `json:"failed_last_minute"`
	Tagged           int64 `json:"tagged"` // clients that the module has given tags
	// Logged counts the module's lines that were logged, and Unlogged the lines beyond the limit.
	Logged   int64 `json:"logged"`
	Unlogged int64 `json:"unlogged"`
	// Waiting counts the clients that wait for an instance of the module. Running and Idle count its instances.
	Waiting int `json:"waiting"`
	Running int `json:"running"`
	Idle    int `json:"idle"`
	// Times counts calls by duration: element n counts calls of less than 2^n microseconds, and the last element all
	// longer ones.
	Times []int64 `json:"times"`
}

// Rewrites counts a listener's sessions with a rewritten direction. This direction is copied: it is not zero-copy.
type Rewrites struct {
	// Rewritten sessions.
	Sessions int64 `json:"sessions" metric:"sessions_total"`
	// Rewritten bytes, changed or not.
	Bytes    int64 `json:"bytes" metric:"bytes_total"`
	BytesOut int64 `json:"bytes_out"` // bytes after rewriting

	Calls  int64            `json:"calls,omitempty"`   // calls of modules, each about a chunk of a session
	TimeUs int64            `json:"time_us,omitempty"` // microseconds of all these calls
	Reset  map[string]int64 `json:"reset,omitempty"`   // sessions that were reset, by reason: encrypted (TLS or SSH began in the bytes to rewrite), or a failure of the module: trap, timeout, memory, stack, exit, start, answer, buffer, overload or denied
	// Rewritten sessions that continued unchanged after their module failed (on_error: pass), by reason.
	Passed   map[string]int64 `json:"passed,omitempty" metric:"passed_total,reason"`
	Logged   int64            `json:"logged,omitempty"`   // lines that modules have logged
	Unlogged int64            `json:"unlogged,omitempty"` // lines beyond the limit per second
	Modules  []RewriteModule  `json:"modules,omitempty"`  // modules for new sessions
}

// A RewriteModule is a WebAssembly module that rewrites sessions.
type RewriteModule struct {
	File      string `json:"file"`      // file of the module
	Direction string `json:"direction"` // up or down
	Engine    string `json:"engine"`    // compiler or interpreter
	Instances int64  `json:"instances"` // instances that sessions use
}

// Cancels counts the requests of PostgreSQL clients to cancel a query. Each is sent to every endpoint that may run the
// query.
type Cancels struct {
	// Cancel requests of PostgreSQL clients.
	Requests int64 `json:"requests" metric:"cancel_requests_total"`
	Sent     int64 `json:"sent"`   // requests sent to endpoints
	Failed   int64 `json:"failed"` // requests that could not be sent to an endpoint
}

// Mirrors describes the mirrors of a listener's sessions: second connections that get the clients' bytes too.
type Mirrors struct {
	To []string `json:"to,omitempty"` // upstreams that get the copies
	// Mirrors that have ended or could not begin, by reason (docs/mirror.md).
	Ended map[string]int64 `json:"ended,omitempty" metric:"ended_total,reason"`
	tally.MirrorCounts
	// Comparisons has the comparison of each mirror with compare.
	Comparisons []Comparison `json:"comparisons,omitempty"`
}

// StoppedBudget is the reason in [Comparison.Stopped] for sessions for which there was no memory.
const StoppedBudget = "budget"

// A Comparison compares the answers of a mirror's endpoints with the answers that clients got.
type Comparison struct {
	Route   string `json:"route,omitempty"` // match of the route with the mirror; left out if the listener has the mirror
	To      string `json:"to"`              // upstream that gets the copy
	Framing string `json:"framing"`         // framing in the file
	// Since is when the report began: at a reset, at a reload that changed the comparison, or at the start of the
	// process.
	Since time.Time `json:"since"`
	// Sessions counts the compared sessions, including running ones. Stopped counts, by reason, sessions that were
	// compared only at their beginning. With the reason budget, sessions were not compared at all for lack of memory.
	Sessions int64            `json:"sessions"`
	Stopped  map[string]int64 `json:"stopped"`
	ComparedAnswers
	// Unnamed counts sessions with answers of unknown name, because not everything that the client sent was seen.
	// Summed counts answers that were partly compared only by a checksum, because one side was far ahead. MaskLimited
	// counts places in long answers where a mask saw fewer bytes than it may have matched. ShadowUnframed counts
	// sessions in which the mirror's answers did not have the framing.
	Unnamed        int64 `json:"unnamed,omitempty"`
	Summed         int64 `json:"summed,omitempty"`
	MaskLimited    int64 `json:"mask_limited,omitempty"`
	ShadowUnframed int64 `json:"shadow_unframed,omitempty"`
	// Names counts answers by their method, line or frame. Examples has examples of differences. The status has
	// neither.
	Names    []NamedAnswers `json:"names,omitempty"`
	Examples []Example      `json:"examples,omitempty"`
}

// ComparedAnswers has the results of a comparison.
type ComparedAnswers struct {
	Compared  int64 `json:"compared"`  // equal and different answers
	Equal     int64 `json:"equal"`     // answers that are the same on both sides, except for masked parts
	Different int64 `json:"different"` // answers that differ, or that one side did not give
	Masked    int64 `json:"masked"`    // answers that a mask excludes from comparison
	Unsettled int64 `json:"unsettled"` // answers that were equal until the session or its mirror ended
	// Lag says how much later the mirror's endpoint completed its answers.
	Lag ShadowLag `json:"lag"`
}

// A ShadowLag says how much later a mirror's endpoint completed its answers than the client's endpoint. Times are
// negative if it was earlier.
type ShadowLag struct {
	Slower int64 `json:"slower"` // answers that the mirror completed later
	Faster int64 `json:"faster"` // answers that the mirror completed earlier
	Alike  int64 `json:"alike"`  // answers within a microsecond of each other
	P50Us  int64 `json:"p50_us"` // half of the answers were at most this many microseconds later; exact to an eighth
	P90Us  int64 `json:"p90_us"` // nine of ten answers were at most this many microseconds later
	P99Us  int64 `json:"p99_us"` // 99 of 100 answers were at most this many microseconds later
}

// NamedAnswers has the results for the answers with one name.
type NamedAnswers struct {
	Name string `json:"name"` // method, line or frame; other for all names beyond the limit; unknown if the request was not seen
	ComparedAnswers
}

// An Example is an example of a difference.
type Example struct {
	Name     string  `json:"name"`     // name of the answer, as in names
	Offset   int64   `json:"offset"`   // offset of the first difference in the masked answer
	Exact    bool    `json:"exact"`    // false if the first difference is at offset or after it
	Redacted bool    `json:"redacted"` // the excerpts have x for letters, and 0 for digits
	Primary  Excerpt `json:"primary"`
	Shadow   Excerpt `json:"shadow"`
}

// An Excerpt has the bytes of an answer around the first difference.
type Excerpt struct {
	Text   string `json:"text"`   // bytes, escaped as in a quoted string of Go: \r\n, \x00
	Begin  int64  `json:"begin"`  // offset of the excerpt in the answer
	Length int64  `json:"length"` // length of the answer
}

// A MirrorReport describes the mirrors of one listener, with their complete comparisons.
type MirrorReport struct {
	Listener string `json:"listener"` // name of the listener
	// Since is when the report was last reset. Left out if it never was. Ended mirrors, their bytes and the comparisons
	// count from that time, or from the start of the listener.
	Since time.Time `json:"since,omitzero"`
	Mirrors
}

// MirrorReports has a report for each listener with mirrors.
type MirrorReports struct {
	Mirrors []MirrorReport `json:"mirrors"` // sorted by listener
}

// A MirrorReporter reports on the mirrors of a running load balancer.
type MirrorReporter interface {
	// Mirrors returns the mirrors of a listener, or of all listeners if listener is empty, with their complete
	// comparisons. ResetMirrors also resets their reports: what it returns is not counted again. The errors wrap [ErrNotFound].
	Mirrors(listener string) (MirrorReports, error)
	ResetMirrors(listener, by string) (MirrorReports, error)
}

// Mirrors returns the mirrors of a listener, or of all listeners if listener is empty.
func (c *Client) Mirrors(ctx context.Context, listener string) (MirrorReports, error) {
	return get[MirrorReports](ctx, c, "/v1/mirrors", "listener", listener)
}

// ResetMirrors returns the reports on the mirrors of a listener, or of all listeners if listener is empty, and resets them.
func (c *Client) ResetMirrors(ctx context.Context, listener string) (MirrorReports, error) {
	return post[MirrorReports](ctx, c, "/v1/mirrors/reset", "listener", listener)
}
