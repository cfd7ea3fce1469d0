package filter

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/penstock/penstock/proxy/internal/wasm"
)

// A Connection is what a filter can see of a client.
type Connection struct {
	// Source and Destination come from the PROXY header if it has them. Source is invalid for a unix socket.
	Source, Destination netip.AddrPort
	// Session is the client's ID in the session log.
	Session string
	// Listener and Upstream are names. Upstream is the upstream of the route.
	Listener, Upstream string
	// ServerName and ALPN come from the client's TLS hello, if it was read.
	ServerName string
	ALPN       []string
	// Unread means that the client's hello was not read completely. A filter that asks for its name or protocols
	// fails.
	Unread bool
	// TLVs are the TLVs of the PROXY header, unchanged.
	TLVs []byte
	// First are the client's first bytes. Ended means that no more follow.
	First []byte
	Ended bool
}

// A Verdict is the answer of a filter.
type Verdict uint8

const (
	// Allow lets the client go on.
	Allow Verdict = iota
	// Deny refuses the client.
	Deny
	// Route sends the client to [Answer.Upstream].
	Route
	// Next makes the client go on as if the route had not matched.
	Next
	// More asks for more of the client's first bytes.
	More
	// Overload means that the filter was not asked, because too many clients wait for it.
	Overload

	verdicts
)

var verdictNames = [verdicts]string{"allow", "deny", "route", "next", "more", "overload"}

// String returns the verdict's name in statuses and metrics.
func (v Verdict) String() string { return verdictNames[v] }

// An Answer is the decision about a client.
type Answer struct {
	Verdict  Verdict
	Upstream string // if Verdict is Route
	// Reason is the filter's reason for Deny. It is safe to log.
	Reason string
	// Tags are set by the filter, as "name=value name=value". They are safe to log.
	Tags string
	// Err is why the filter has failed. Verdict is then [Config.OnError], unless the filter had already denied.
	Err error
}

// A Failure is a reason why a filter has not answered.
type Failure uint8

// Reasons of a [Failure].
const (
	FailedTrap Failure = iota
	FailedTimeout
	FailedMemory
	FailedStack
	FailedExit
	FailedStart  // a new instance did not start
	FailedAnswer // the answer is invalid

	failures
)

var failureNames = [streamFailures]string{"trap", "timeout", "memory", "stack", "exit", "start", "answer", "buffer", "overload", "denied", "encrypted"}

var (
	// ErrAnswer means that the module's answer is invalid.
	ErrAnswer = errors.New("the module's answer is invalid")
	// ErrConfiguration means that the module does not accept its configuration.
	ErrConfiguration = errors.New("the module does not accept its configuration")
	// errRefuses means that an instance does not start, whatever its configuration is.
	errRefuses = errors.New("the module refuses to start")
	// ErrPreread means that the filter decides by first bytes alone, and may see none.
	ErrPreread = errors.New("the module needs a client's first bytes (proxy_on_downstream_data), but preread is 0")
	// errStart means that an instance could not start.
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
	// MaxReason is how many bytes of the reason of a denial are kept.
	MaxReason = 200
	// MaxTags is how many bytes all tags of a client may have.
	MaxTags = 256
	maxTag  = 64
)

// text returns up to most bytes of a module's text, in a form that is safe to log.
func text(b []byte, most int) string { return wasm.Printable(string(b[:min(len(b), most+1)]), most) }

// addTag adds a tag, and reports whether there was room for it. Spaces and equals signs separate tags, so they are
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
