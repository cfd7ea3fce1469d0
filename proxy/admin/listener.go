package admin

import (
	"context"
	"time"

	"github.com/penstock/penstock/proxy/internal/keypair"
)

// A Listener is the status of a listener.
type Listener struct {
	Name      string   `json:"name"`               // as in the file
	Addresses []string `json:"addresses"`          // with the ports that the kernel chose
	Binds     []Bind   `json:"binds,omitempty"`    // as in the file
	State     State    `json:"state"`              // serving, paused or draining
	FastOpen  bool     `json:"fastopen,omitempty"` // as in the file
	// Congestion is the congestion control of its clients' connections; nil: the system's default, or the
	// listener has only unix sockets.
	Congestion *Congestion `json:"congestion,omitempty"`
	// DrainedByHand means that it was drained through this API, until a reload.
	DrainedByHand bool `json:"drained_by_hand,omitempty"`
	// RefusesAll is the reason for which it refuses every client, by its own rules.
	RefusesAll string `json:"refuses_all,omitempty"`
	// DeniedByHand are the sources that are denied here by hand; nil: none is.
	DeniedByHand *ListenerDenials `json:"denied_by_hand,omitempty"`
	// PausedAt is the limit at which accepting is paused: connections, per_second or, of all listeners together, process per_second.
	// Further clients wait in the kernel's queue.
	PausedAt string `json:"paused_at,omitempty"`
	// Times that accepting has paused at a limit: connections, per_second, or process per_second.
	Pauses      map[string]int64 `json:"pauses,omitempty" metric:"pauses_total,limit"`
	Connections Connections      `json:"connections" metric:""`
	Bytes       Bytes            `json:"bytes"`
	Reasons     map[string]int64 `json:"refused_by,omitempty"` // refused clients by reason
	// Clients by protocol, if routes depend on their first bytes (docs/first-bytes.md).
	Protocols  map[string]int64 `json:"protocols,omitempty" metric:"protocol_clients_total,protocol"`
	Handshakes *Handshakes      `json:"handshakes,omitempty"` // with clients; nil: TLS is not terminated here
	Queues     []Queue          `json:"accept_queues"`        // of its sockets
	// Certificates are those shown to clients.
	Certificates []Certificate `json:"certificates,omitempty"`
	// AuthoritiesRefused is why the present contents of the file in client_ca are not in use, and the
	// former contents still are. It is left out if the present contents are in use, or there is no
	// such file.
	AuthoritiesRefused string  `json:"authorities_refused,omitempty"`
	Routes             []Route `json:"routes,omitempty"` // in order; the default route is the last
	// Limited is the time of its sessions that have ended, in seconds, by verdict: the cause that limited it. Only
	// verdicts that occurred; sessions that were too short for a verdict are not in it.
	Limited map[string]float64 `json:"limited_seconds,omitempty"`
	// Mirrors are the copies of its sessions that other upstreams get; nil: there are none.
	Mirrors *Mirrors `json:"mirrors,omitempty" metric:"penstock_mirror_"`
	// Rewrites are its sessions with one direction rewritten; nil: there are none.
	Rewrites *Rewrites `json:"rewrites,omitempty" metric:"penstock_rewrite_"`
	// Filters are the modules that are asked about its clients.
	Filters []Filter `json:"filters,omitempty"`
	// Cancels are the requests to cancel a query; left out unless the listener speaks PostgreSQL.
	Cancels *Cancels `json:"cancel_requests,omitempty" metric:""`
}

// A Bind is an address of a listener, or all sockets that systemd has passed under a name.
type Bind struct {
	Bind   string `json:"bind"`   // as in the file
	Active int64  `json:"active"` // connections accepted there
}

// A Congestion is the congestion control of sockets as the file names it, and as they have it.
type Congestion struct {
	Configured string `json:"configured"` // as in the file
	// Used is read back from the kernel: from a listening socket, or a new socket like the connecting ones; "": unknown.
	Used string `json:"used"`
	// Error is why the two differ.
	Error string `json:"error,omitempty"`
	// Refused counts the connections to endpoints that have the system's, because the kernel has
	// refused the configured one.
	Refused int64 `json:"refused,omitempty"`
}

// A Queue is the accept queue of a listening socket: connections that the kernel has
// established, and that wait for accept.
type Queue struct {
	Address string `json:"address"` // of the socket
	Known   bool   `json:"known"`   // the kernel reports its length
	Length  int64  `json:"length"`  // now; 0 if unknown
	Most    int64  `json:"most"`    // if more wait the queue overflows, and clients have to try again
	// Dropped counts the overflows, and DroppedLastMinute those within about the last minute,
	// as of the last second. Both are 0 if unknown: the kernel does not count them for
	// Multipath TCP and unix sockets.
	Dropped           int64 `json:"dropped"`
	DroppedLastMinute int64 `json:"dropped_last_minute"`
	DroppedKnown      bool  `json:"dropped_known"` // whether they are known
}

// A Certificate is a certificate that is shown to peers.
type Certificate struct {
	Path string    `json:"path"` // of its file
	From time.Time `json:"from"` // start of its validity
	Ends time.Time `json:"ends"` // end of its validity
	// Refused is why the present contents of the files are not in use, and former contents still are.
	// It is left out if the present contents are in use.
	Refused string `json:"refused,omitempty"`
}

// expiresSoon is the time before its expiry at which a certificate becomes a problem, unless a
// fifth of its lifetime is less.
const expiresSoon = 14 * 24 * time.Hour

// Due is from when the status has the problem certificate_expires, until the certificate ends.
func (c *Certificate) Due() time.Time { return c.Ends.Add(-min(expiresSoon, c.Ends.Sub(c.From)/5)) }

// CertificatesOf returns the certificate of an address of the process; nil for none.
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
	Match string             `json:"match,omitempty"` // as in the file; "" for the default route
	To    map[string]float64 `json:"to"`              // percentages by upstream
}

// A Filter is a module that is asked about the clients of a listener, see docs/filters.md. Its counts go on
// when another file takes its name.
type Filter struct {
	Name string `json:"name"` // of its key name, or of its file
	File string `json:"file"` // of the module
	// Engine is compiler, or interpreter: where memory may not be made executable, and until a large module has
	// been compiled.
	Engine string `json:"engine"`
	// Calls is how often it was asked, and TimeUs the time of all calls, in microseconds.
	Calls  int64 `json:"calls"`
	TimeUs int64 `json:"time_us"`
	// Answers are by answer: allow, deny, route, next, more, overload. A call that has failed is counted by the
	// answer that on_error has made of it, and in Failures by reason: trap, timeout, memory, stack, exit, start,
	// answer.
	Answers  map[string]int64 `json:"answers,omitempty"`
	Failures map[string]int64 `json:"failures,omitempty"`
	// FailedLastMinute is the failures of about the last minute.
	FailedLastMinute int64 `json:"failed_last_minute"`
	Tagged           int64 `json:"tagged"` // clients that have got tags
	// Logged and Unlogged are its lines that were logged, and those beyond the bound.
	Logged   int64 `json:"logged"`
	Unlogged int64 `json:"unlogged"`
	// Waiting is the clients that wait to be asked about now; Running and Idle are instances.
	Waiting int `json:"waiting"`
	Running int `json:"running"`
	Idle    int `json:"idle"`
	// Times are the calls by their times: the nth of less than 2^n microseconds, the last of all others.
	Times []int64 `json:"times"`
}

// Rewrites are a listener's sessions with one direction rewritten. That direction is copied: it is
// not zero-copy.
type Rewrites struct {
	// Rewritten sessions.
	Sessions int64 `json:"sessions" metric:"sessions_total"`
	// Rewritten bytes, changed or not.
	Bytes    int64 `json:"bytes" metric:"bytes_total"`
	BytesOut int64 `json:"bytes_out"` // that have gone on: a module may have made more or less of the bytes that came

	Calls  int64            `json:"calls,omitempty"`   // of modules, each about a chunk of a session
	TimeUs int64            `json:"time_us,omitempty"` // of those calls, together
	Reset  map[string]int64 `json:"reset,omitempty"`   // sessions that were reset, by reason: encrypted (TLS or SSH began in the bytes to be rewritten), or because of their module trap, timeout, memory, stack, exit, start, answer, buffer, overload, denied
	// Number of sessions that went on unchanged after their module failed (on_error: pass), by reason.
	Passed   map[string]int64 `json:"passed,omitempty" metric:"passed_total,reason"`
	Logged   int64            `json:"logged,omitempty"`   // lines that modules have logged
	Unlogged int64            `json:"unlogged,omitempty"` // lines beyond the number that is logged in a second
	Modules  []RewriteModule  `json:"modules,omitempty"`  // that new sessions are rewritten by
}

// A RewriteModule is a module of WebAssembly that rewrites sessions.
type RewriteModule struct {
	File      string `json:"file"`      // of the module
	Direction string `json:"direction"` // up or down
	Engine    string `json:"engine"`    // compiler or interpreter
	Instances int64  `json:"instances"` // that sessions have
}

// Cancels are requests of clients of PostgreSQL to cancel a query. Each is sent to every endpoint that may have it.
type Cancels struct {
	// Cancel requests of PostgreSQL clients.
	Requests int64 `json:"requests" metric:"cancel_requests_total"`
	Sent     int64 `json:"sent"`   // to endpoints
	Failed   int64 `json:"failed"` // could not be sent to an endpoint
}

// Mirrors are the mirrors of a listener's sessions: second connections that get the clients' bytes as well.
type Mirrors struct {
	To []string `json:"to,omitempty"` // upstreams
	// Mirrors that run now.
	Running int64 `json:"running" metric:"connections"`
	// Mirrors that have ended or could not begin, by reason (docs/mirror.md).
	Ended map[string]int64 `json:"ended,omitempty" metric:"ended_total,reason"`
	// Teed and Copied are the bytes that their endpoints have got: Teed bytes never entered the process, Copied bytes
	// did. Undelivered are bytes that they did not take, and Answered are bytes of their answers, which were thrown
	// away. The bytes of running mirrors are counted about every second.
	Teed        int64 `json:"teed"`
	Copied      int64 `json:"copied"`
	Undelivered int64 `json:"undelivered"`
	Answered    int64 `json:"answered"`
	// Complete mirrors without a byte of answer from the endpoint.
	Unanswered int64 `json:"unanswered,omitempty" metric:"unanswered_total"`
	// How many complete mirrors in a row, up to the last one, got no byte of answer.
	Silent int64 `json:"silent,omitempty" metric:"silent"`
	// Comparisons are the mirrors with compare: their answers are compared.
	Comparisons []Comparison `json:"comparisons,omitempty"`
}

// StoppedBudget is the reason in [Comparison.Stopped] of sessions for which there was no memory.
const StoppedBudget = "budget"

// A Comparison is the answers of a mirror's endpoints compared with the answers that clients got.
type Comparison struct {
	Route   string `json:"route,omitempty"` // match of the route that has the mirror; left out: the listener has it
	To      string `json:"to"`              // upstream
	Framing string `json:"framing"`         // as in the configuration
	// Since is when the report began: at a reset, a reload that changed the comparison, or the start of the process.
	Since time.Time `json:"since"`
	// Sessions are the sessions that were compared, including sessions that still run. Stopped counts,
	// by reason, sessions that were compared only at their beginning; budget are sessions that were
	// not compared at all, as there was no memory.
	Sessions int64            `json:"sessions"`
	Stopped  map[string]int64 `json:"stopped"`
	ComparedAnswers
	// Unnamed are sessions in which not all that the client sent was seen, so that names of answers are unknown;
	// Summed answers that were compared in part by a sum alone, as one side was far ahead; MaskLimited places in long
	// answers where a mask was given fewer bytes than it may have matched; ShadowUnframed sessions in which the answers
	// of the mirror's endpoint were not of the framing.
	Unnamed        int64 `json:"unnamed,omitempty"`
	Summed         int64 `json:"summed,omitempty"`
	MaskLimited    int64 `json:"mask_limited,omitempty"`
	ShadowUnframed int64 `json:"shadow_unframed,omitempty"`
	// Names are the answers by the method, line or frame that they are for, and Examples differences. The
	// status has neither.
	Names    []NamedAnswers `json:"names,omitempty"`
	Examples []Example      `json:"examples,omitempty"`
}

// ComparedAnswers are the results of a comparison.
type ComparedAnswers struct {
	Compared  int64 `json:"compared"`  // equal and different ones
	Equal     int64 `json:"equal"`     // both sides' answers are the same, except for masks
	Different int64 `json:"different"` // they are not, or one side lacks its answer
	Masked    int64 `json:"masked"`    // not compared, as a mask says
	Unsettled int64 `json:"unsettled"` // equal as far as they came before the session or its mirror ended
	// Lag is how much later the mirror's endpoint has ended its answers.
	Lag ShadowLag `json:"lag"`
}

// A ShadowLag is how much later a mirror's endpoint has ended its answers than the client's endpoint. Times are
// negative if it was earlier.
type ShadowLag struct {
	Slower int64 `json:"slower"` // answers
	Faster int64 `json:"faster"` // likewise
	Alike  int64 `json:"alike"`  // within a microsecond
	P50Us  int64 `json:"p50_us"` // half of the answers are at most so much later, in microseconds, to an eighth
	P90Us  int64 `json:"p90_us"` // likewise nine of ten
	P99Us  int64 `json:"p99_us"` // likewise 99 of 100
}

// NamedAnswers are the answers of a method, or all lines or frames.
type NamedAnswers struct {
	Name string `json:"name"` // other: of further names; unknown: the request was not seen
	ComparedAnswers
}

// An Example is a difference.
type Example struct {
	Name     string  `json:"name"`     // as in names
	Offset   int64   `json:"offset"`   // of the first difference in the answer, masked
	Exact    bool    `json:"exact"`    // false: the first difference is there or behind it
	Redacted bool    `json:"redacted"` // letters are x in the excerpts, and digits 0
	Primary  Excerpt `json:"primary"`
	Shadow   Excerpt `json:"shadow"`
}

// An Excerpt is bytes of an answer around the first difference.
type Excerpt struct {
	Text   string `json:"text"`   // as within quotes of Go and JSON: \r\n, \x00
	Begin  int64  `json:"begin"`  // of the excerpt in the answer
	Length int64  `json:"length"` // of the answer
}

// A MirrorReport is the mirrors of one listener, with the whole reports of comparisons.
type MirrorReport struct {
	Listener string `json:"listener"` // its name
	// Since is when the report was reset; left out: it was not. Mirrors that ended, their bytes and the comparisons
	// count from that time, or from the start of the listener.
	Since time.Time `json:"since,omitzero"`
	Mirrors
}

// MirrorReports are the mirrors of all listeners that have some.
type MirrorReports struct {
	Mirrors []MirrorReport `json:"mirrors"` // in the order of the names of listeners
}

// A MirrorReporter reports on the mirrors of a running load balancer.
type MirrorReporter interface {
	// Mirrors returns the mirrors of a listener, or of all if listener is empty, with the reports of
	// comparisons. ResetMirrors makes the reports count from now on. Their errors wrap [ErrNotFound].
	Mirrors(listener string) (MirrorReports, error)
	ResetMirrors(listener, by string) error
}

// Mirrors returns the mirrors of a listener, of all if that is empty.
func (c *Client) Mirrors(ctx context.Context, listener string) (MirrorReports, error) {
	return get[MirrorReports](ctx, c, "/v1/mirrors", "listener", listener)
}

// ResetMirrors makes the reports on the mirrors of a listener, or of all if listener is empty,
// count from now on.
func (c *Client) ResetMirrors(ctx context.Context, listener string) error {
	_, err := post[empty](ctx, c, "/v1/mirrors/reset", "listener", listener)
	return err
}
