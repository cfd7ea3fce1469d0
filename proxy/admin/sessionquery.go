package admin

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A SessionQuery selects clients that are served. All that is set must be true of a client.
type SessionQuery struct {
	// ID is a client's, as [Session] has it.
	ID string
	// Listener and Upstream are names, or [UnknownName] for adopted sessions of which that is not known. Endpoint is a name or an address.
	Listener, Upstream, Endpoint string
	// Source is an address, a prefix, unix, unix:uid=N or unix:gid=N.
	Source string
	// Older is the least age, Idle the least time without a byte, and Bytes the least number of bytes in
	// both directions; 0: any.
	Older, Idle time.Duration
	Bytes       int64
	// State is one of those of [Session].
	State string
	// Verdict selects sessions by what has limited them since their beginning, one of those of [Why];
	// [AnyVerdict] selects all sessions, with their verdicts. Each session that the rest selects takes two
	// system calls then.
	Verdict string
	// Engine is [EngineLane] for sessions that have left user space; "": any.
	Engine string
}

// UnknownName selects adopted sessions whose listener, or upstream, is not known, for its name is not in the file. No part of a file can have such a name.
const UnknownName = "@unknown"

// EngineLane is the engine of sessions that have left user space.
const EngineLane = "lane"

// AnyVerdict has the verdicts of all sessions found out.
const AnyVerdict = "any"

// Selects reports whether q leaves any client out.
func (q *SessionQuery) Selects() bool {
	all := SessionQuery{Verdict: AnyVerdict}
	return *q != SessionQuery{} && *q != all
}

// String returns q in one line, as words of a command line.
func (q *SessionQuery) String() string {
	values := url.Values{}
	q.set(values)
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

// set sets the parameters of q.
func (q *SessionQuery) set(values url.Values) {
	for name, v := range map[string]string{
		"id": q.ID, "listener": q.Listener, "upstream": q.Upstream, "endpoint": q.Endpoint, "source": q.Source, "state": q.State, "verdict": q.Verdict, "engine": q.Engine,
	} {
		if v != "" {
			values.Set(name, v)
		}
	}
	for name, v := range map[string]time.Duration{"older": q.Older, "idle": q.Idle} {
		if v != 0 {
			values.Set(name, v.String())
		}
	}
	if q.Bytes != 0 {
		values.Set("bytes", strconv.FormatInt(q.Bytes, 10))
	}
}

// sessionFilters are the parameters of a SessionQuery.
var sessionFilters = []string{"id", "listener", "upstream", "endpoint", "source", "older", "idle", "bytes", "state", "verdict", "engine"}

// A SessionOrder sorts and bounds a list of clients. The zero value lists all, as they are found.
type SessionOrder struct {
	By string // one of SessionOrders; empty: as they are found
	// Top is the length of the list; 0: all if By is empty, and otherwise MaxTop.
	Top int
}

// SessionOrders are the orders: numbers begin with the largest, names with the first.
var SessionOrders = []string{"age", "idle", "bytes", "in", "out", "client", "listener", "upstream", "endpoint", "state", "verdict"}

// MaxTop is the longest list that is sorted.
const MaxTop = 10_000

// StatesWithoutEndpoint are the states of clients that have no session yet: none that could be ended.
var StatesWithoutEndpoint = []string{"preread", "dialing", "waiting", "responding"}

// sessionStates are those of [Session], and sessionVerdicts those of [Why].
var (
	sessionStates   = append(slices.Clip(StatesWithoutEndpoint), "joined", "client-ended", "endpoint-ended", "ending")
	sessionVerdicts = []string{"client", "client_network", "endpoint", "endpoint_network", "proxy", "limit", "idle", "unknown", AnyVerdict}
)

// A choice is a parameter that is one of some words.
func choice(to *string, words, values []string) error {
	if err := text(to, values); err != nil {
		return err
	}
	if !slices.Contains(words, *to) {
		return fmt.Errorf("%q is none of them: write %s", *to, strings.Join(words, ", "))
	}
	return nil
}

// duration parses a time of at least 0.
func duration(to *time.Duration, values []string) error {
	v, err := once(values)
	if err != nil {
		return err
	}
	if *to, err = time.ParseDuration(v); err != nil || *to < 0 || !orderly.MatchString(v) {
		return fmt.Errorf("%q is not a time: write 500ms, 30s, 5m or 1h30m", v)
	}
	return nil
}

// orderly are times with each unit once, the larger ones first: 1h1h may be meant as 1h1m.
var orderly = regexp.MustCompile(`^[+-]?([0-9.]+h)?([0-9.]+m)?([0-9.]+s)?([0-9.]+ms)?([0-9.]+[uµμ]s)?([0-9.]+ns)?$|^[+-]?0$`)

// size parses a number of bytes.
func size(to *int64, values []string) error {
	v, err := once(values)
	if err != nil {
		return err
	}
	if *to, err = ParseSize(v); err != nil {
		return err
	}
	return nil
}

// sizeUnits are those of ParseSize, as shifts.
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

// flag parses true or false.
func flag(to *bool, values []string) error {
	v, err := once(values)
	switch {
	case err != nil:
		return err
	case v != "true" && v != "false":
		return fmt.Errorf("%q is neither true nor false: write true or false", v)
	}
	*to = v == "true"
	return nil
}
