package admin

import (
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
