package incident

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/penstock/penstock/bench/endpoint"
)

// loadPlan is the input of the load. The load prints a line when it has begun, and then a
// loadResult.
type loadPlan struct {
	Address string           `json:"address"`
	Rate    float64          `json:"rate"`    // requests in a second
	Timeout time.Duration    `json:"timeout"` // of a request
	Answer  int              `json:"answer"`  // bytes of one, with its header
	Phases  [3]time.Duration `json:"phases"`
	Margin  time.Duration    `json:"margin"` // a phase begins so much earlier than the event that it is named after
}

type begun struct {
	At time.Time `json:"at"`
}

// runLoad carries out a plan. It ends with its input, too.
func runLoad(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var p loadPlan
	from, to := json.NewDecoder(in), json.NewEncoder(out)
	if err := from.Decode(&p); err != nil {
		return fmt.Errorf("the plan: %w", err)
	}
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in)
	}()
	start := time.Now()
	if err := to.Encode(begun{start}); err != nil {
		return err
	}
	c := newCount(&p)
	p.make(ctx, start, c)
	if err := ctx.Err(); err != nil {
		return err
	}
	return to.Encode(c.result())
}

// make makes all requests, each at its time, and returns when the last is over.
func (p *loadPlan) make(ctx context.Context, start time.Time, c *count) {
	endpoint.AtRate(ctx, start, p.Rate, p.Phases[0]+p.Phases[1]+p.Phases[2], func(_ int, at time.Duration) {
		began := start.Add(at)
		_, err := endpoint.Ask(ctx, endpoint.Request{Address: p.Address, Deadline: began.Add(p.Timeout), Answer: p.Answer})
		c.add(at, time.Since(began), err)
	})
}
