package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// ErrEndings is wrapped by the error of an end of sessions beyond those that may be under way at once.
var ErrEndings = errors.New("as many requests to end sessions as may be are under way")

// An EndQuery selects sessions, and says how they are ended. Clients that have no endpoint yet are not
// among them.
type EndQuery struct {
	SessionQuery
	// All selects all sessions; otherwise the SessionQuery must select some.
	All bool
	// Now ends them whether or not bytes are on their way. Otherwise each goes on until it is quiet: no byte has
	// moved for the time of Quiet, none is held, unread or unacknowledged, and the client was not the last to send.
	Now bool
	// Quiet is that time. Whether an answer is whole cannot be known: it is longer than the pauses of one, as far
	// as those who choose it know. 0: [DefaultQuiet].
	Quiet time.Duration
	// Over spreads the ends over a time, at random; 0: as soon as possible.
	Over time.Duration
	// Grace is how long a session may take to become quiet. Then it goes on, or is ended all the same with
	// ThenReset. 0: [DefaultGrace].
	Grace     time.Duration
	ThenReset bool
	// DryRun only counts.
	DryRun bool
}

// Bounds of an [EndQuery].
const (
	DefaultGrace = 30 * time.Second
	DefaultQuiet = 10 * time.Second
	LeastQuiet   = time.Second
	MaxEnd       = 24 * time.Hour // of Over, Grace and Quiet
	// EndWait is for how long the answer waits for the last end.
	EndWait = 40 * time.Second
)

// Ended counts sessions that an [EndQuery] has selected. Touched is the sum of Ended, Other, Left, Waiting, Kept and
// Stopped; after a dry run these are 0.
type Ended struct {
	Touched int64 `json:"touched"` // selected
	Ended   int64 `json:"ended"`   // by it
	Other   int64 `json:"other"`   // had been ended by another request before
	Left    int64 `json:"left"`    // had ended by themselves before it was their turn
	Waiting int64 `json:"waiting"` // are not quiet, or it is not their turn yet
	// Kept were not quiet in time, and go on.
	Kept int64 `json:"kept"`
	// Stopped go on, for the request was called off.
	Stopped int64 `json:"stopped"`
	// WithoutEndpoint are clients that have no endpoint yet: they are not among those, and are left alone.
	WithoutEndpoint int64 `json:"without_endpoint"`
	// Unanswering counts the sessions whose endpoint was down, ejected or silent when they were selected. While it is,
	// they are not quiet.
	Unanswering int64 `json:"unanswering"`
	// QuietUs is for how long each had to move no byte; 0: they are ended at once.
	QuietUs int64 `json:"quiet_us"`
	// DryRun says that the sessions were only counted.
	DryRun bool `json:"dry_run,omitzero"`
	// Done says that nothing more happens, as after a dry run. Otherwise the rest is ended until Until, and the log has the numbers
	// then.
	Done  bool      `json:"done"`
	Until time.Time `json:"until,omitzero"`
}

// endSessions handles POST /v1/sessions/end.
func (s *Server) endSessions(ctx context.Context, a *arguments) (any, error) {
	q := a.end
	q.SessionQuery = a.query()
	switch {
	case q.Selects() == q.All:
		return nil, fmt.Errorf("%w: write which sessions: one of %s at least, or all=true without them", ErrInvalid, strings.Join(sessionFilters, ", "))
	case slices.Contains(StatesWithoutEndpoint, q.State):
		return nil, fmt.Errorf("%w: state: clients that are %q have no endpoint yet, and no session that could end: deny their source (POST /v1/deny/add), which refuses those that wait, too", ErrInvalid, q.State)
	case q.Now && (q.Grace != 0 || q.Quiet != 0 || q.ThenReset):
		return nil, fmt.Errorf("%w: grace, quiet and then_reset are for sessions that end gently: leave them or now out", ErrInvalid)
	case q.Quiet != 0 && q.Quiet < LeastQuiet:
		return nil, fmt.Errorf("%w: quiet: %v: write %v or more", ErrInvalid, q.Quiet, LeastQuiet)
	case q.Over > MaxEnd, q.Grace > MaxEnd, q.Quiet > MaxEnd:
		return nil, fmt.Errorf("%w: over, grace, quiet: write at most %v", ErrInvalid, MaxEnd)
	}
	return s.cfg.Balancer.EndSessions(ctx, q, a.by)
}

// keepSessions handles POST /v1/sessions/keep.
func (s *Server) keepSessions(_ context.Context, a *arguments) (any, error) {
	return s.cfg.Balancer.StopEnding(a.by), nil
}

// EndSessions ends sessions. It returns when the last one has ended, or after [EndWait].
func (c *Client) EndSessions(ctx context.Context, q EndQuery) (e Ended, err error) {
	values := url.Values{}
	q.set(values)
	for name, on := range map[string]bool{"all": q.All, "now": q.Now, "then_reset": q.ThenReset, "dry_run": q.DryRun} {
		if on {
			values.Set(name, "true")
		}
	}
	for name, d := range map[string]time.Duration{"over": q.Over, "grace": q.Grace, "quiet": q.Quiet} {
		if d != 0 {
			values.Set(name, d.String())
		}
	}
	return e, c.do(ctx, http.MethodPost, "/v1/sessions/end", values, &e)
}

// Stopped is the result of [Balancer].StopEnding.
type Stopped struct {
	Requests int   `json:"requests"` // that were under way
	Kept     int64 `json:"kept"`     // sessions that these had not ended yet, and that go on
}

// StopEnding calls off the ends of sessions that are under way.
func (c *Client) StopEnding(ctx context.Context) (s Stopped, err error) {
	return s, c.do(ctx, http.MethodPost, "/v1/sessions/keep", nil, &s)
}
