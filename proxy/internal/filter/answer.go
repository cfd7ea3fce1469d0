package filter

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/penstock/penstock/proxy/internal/wasm"
)

// A Connection is the part of a client that a filter sees.
type Connection struct {
	// Source and Destination are those of the PROXY header if it has them. Source is invalid for a unix socket.
	Source, Destination netip.AddrPort
	// Session is the client's ID in the session log.
	Session string
	// Listener and Upstream are names; Upstream is that of the route.
	Listener, Upstream string
	// ServerName and ALPN are of the client's hello, if it was looked at.
	ServerName string
	ALPN       []string
	// Unread says that the client's hello was not read whole: a filter that asks for its name or its protocols fails.
	Unread bool
	// TLVs are those of the PROXY header, as they came.
	TLVs []byte
	// First is the client's first bytes, and Ended says that there are none after them.
	First []byte
	Ended bool
}

// A Verdict is the answer of a filter.
type Verdict uint8

const (
	// Allow: the client goes on.
	Allow Verdict = iota
	// Deny: it is refused.
	Deny
	// Route: it goes to [Answer.Upstream].
	Route
	// Next: it goes on as if the route had not matched.
	Next
	// More: the filter wants more of its first bytes.
	More
	// Overload: it was not asked, since too many clients wait for it.
	Overload

	verdicts
)

// String is its name in statuses and metrics.
func (v Verdict) String() string {
	return [...]string{"allow", "deny", "route", "next", "more", "overload"}[v]
}

// An Answer is what becomes of a client.
type Answer struct {
	Verdict  Verdict
	Upstream string // of Route
	// Reason is the filter's own, of Deny; it is safe to be logged.
	Reason string
	// Tags are the filter's, as "name=value name=value", safe to be logged.
	Tags string
	// Err is why the filter has failed; then Verdict is by [Config.OnError], unless it had denied before.
	Err error
}

// A Failure is a reason for which a filter has not answered.
type Failure uint8

// Failures.
const (
	FailedTrap Failure = iota
	FailedTimeout
	FailedMemory
	FailedStack
	FailedExit
	FailedStart  // a new instance could not begin
	FailedAnswer // an answer that is none

	failures
)

// String is its name in statuses and metrics.
func (f Failure) String() string {
	return [...]string{"trap", "timeout", "memory", "stack", "exit", "start", "answer", "buffer", "overload", "denied", "encrypted"}[f]
}

var (
	// ErrAnswer is the error of an answer that is none.
	ErrAnswer = errors.New("the answer is not one of a filter")
	// ErrConfiguration is the error of a filter that does not accept its configuration.
	ErrConfiguration = errors.New("the module does not accept its configuration")
	// errRefuses is that of an instance that does not begin, whatever its configuration is.
	errRefuses = errors.New("the module refuses to begin")
	// ErrPreread is the error of a filter that decides by first bytes alone, and may see none.
	ErrPreread = errors.New("the module decides by first bytes alone (proxy_on_downstream_data), and preread is 0")
	// errStart is that of an instance that could not begin.
	errStart = errors.New("start")
)

func failureOf(err error) Failure {
	for _, c := range []struct {
		err error
		f   Failure
	}{
		{errStart, FailedStart},
		{ErrAnswer, FailedAnswer},
		{wasm.ErrTimeout, FailedTimeout},
		{wasm.ErrMemory, FailedMemory},
		{wasm.ErrStack, FailedStack},
		{wasm.ErrExit, FailedExit},
	} {
		if errors.Is(err, c.err) {
			return c.f
		}
	}
	return FailedTrap
}

const (
	// MaxReason is the most bytes of the reason of a denial that are kept.
	MaxReason = 200
	// MaxTags is the most bytes of all tags of a client.
	MaxTags = 256
	maxTag  = 64
)

// text returns a text of a module as it may be logged, of at most some bytes.
func text(b []byte, most int) string {
	cut := b[:min(len(b), most)]
	s := wasm.Printable(string(cut))
	if len(b) > most {
		s += "…"
	}
	return s
}

// addTag adds a tag, unless there would be too many. Spaces and equals signs separate tags, so they are
// replaced.
func (a *Answer) addTag(name, value []byte) bool {
	plain := strings.NewReplacer(" ", "_", "=", "_", "\"", "_", "\\", "_")
	tag := plain.Replace(text(name, maxTag)) + "=" + plain.Replace(text(value, maxTag))
	if len(name) == 0 || len(a.Tags)+1+len(tag) > MaxTags {
		return false
	}
	if a.Tags != "" {
		a.Tags += " "
	}
	a.Tags += tag
	return true
}
