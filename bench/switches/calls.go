package switches

import (
	"context"
	"errors"
	"time"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
)

// countingTime bounds the run that counts system calls, with a tool that has to
// attach itself to every thread.
const countingTime = time.Minute

// calls counts the system calls of a server, in a run of its own that is not timed, because
// the tool slows it down. A failure of the tool is reported in the row; it costs nothing else.
func (b *bench) calls(ctx context.Context, row *Row, s *server, n int) error {
	if b.Counter == nil || row.Median == nil {
		return nil
	}
	b.Notify(rounds.Progress{Doing: "system calls", Case: connections(n), Contestant: s.name, Result: "counting"})
	counting, cancel := context.WithTimeout(ctx, countingTime)
	defer cancel()
	perRequest, err := b.count(counting, s, n)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		row.CallsFailed = err.Error()
		return nil
	}
	row.CallsPerRequest = report.Number(perRequest)
	row.CallsPerSecond = row.CallsPerRequest * row.Median.RequestsPerSecond
	return nil
}

// count returns a server's system calls per request. Both the server and the
// load are of this run only, and end with it in the middle of the plan.
func (b *bench) count(ctx context.Context, s *server, n int) (float64, error) {
	from, err := b.Group.Start(b.Load)
	if err != nil {
		return 0, err
	}
	defer from.Kill()
	r, err := b.start(ctx, s, n)
	if err != nil {
		return 0, err
	}
	defer r.server.Kill()
	over, err := r.drive(ctx, from, 0, 2*countingTime)
	if err != nil {
		return 0, err
	}
	if _, err := r.active(ctx, over); err != nil {
		return 0, r.blame(ctx, err, from)
	}
	var requests float64
	calls, err := b.Counter.Count(ctx, []int{r.server.Pid()}, func() error {
		first, err := r.ask(ctx)
		if err != nil {
			return err
		}
		_, last, err := r.after(ctx, b.Window)
		if err == nil {
			requests = float64(last.Echoed-first.Echoed) / Size
		}
		return err
	})
	switch {
	case err != nil:
		return 0, err
	case requests == 0:
		return 0, errors.New("nothing was echoed while it counted")
	}
	return float64(calls) / requests, nil
}
