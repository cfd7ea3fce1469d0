package admin

import (
	"context"
	"time"
)

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
