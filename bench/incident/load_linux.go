package incident

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// loadPlan is what the load reads. It prints when it has begun, and then a loadResult.
type loadPlan struct {
	Address string           `json:"address"`
	Rate    float64          `json:"rate"`    // requests in a second
	Timeout time.Duration    `json:"timeout"` // of a request
	Answer  int              `json:"answer"`  // bytes of one, with its header
	Phases  [3]time.Duration `json:"phases"`
	Margin  time.Duration    `json:"margin"` // a phase begins so much earlier than what it is named after
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
	var under sync.WaitGroup
	defer under.Wait()
	total := p.Phases[0] + p.Phases[1] + p.Phases[2]
	for i := 0; ; i++ {
		at := time.Duration(float64(i) / p.Rate * float64(time.Second))
		if at >= total || ctx.Err() != nil {
			return
		}
		if late := time.Since(start.Add(at)); late < 0 && !pause(ctx, nil, -late) {
			return
		}
		under.Go(func() {
			began := start.Add(at)
			err := p.request(ctx, began)
			c.add(at, time.Since(began), err)
		})
	}
}

const requestText = "GET / HTTP/1.1\r\nHost: incident\r\nConnection: close\r\n\r\n"

// Why requests fail.
var (
	errClosed = errors.New("closed without an answer")
	errCut    = errors.New("cut short")
)

// request makes one request and reads its answer.
func (p *loadPlan) request(ctx context.Context, began time.Time) error {
	dialer := net.Dialer{Deadline: began.Add(p.Timeout)}
	c, err := dialer.DialContext(ctx, "tcp", p.Address)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(dialer.Deadline); err != nil {
		return err
	}
	if _, err := io.WriteString(c, requestText); err != nil {
		return err
	}
	switch n, err := io.Copy(io.Discard, c); {
	case err != nil:
		return err
	case n == 0:
		return errClosed
	case int(n) != p.Answer:
		return errCut
	}
	return nil
}

// reason says in a word why a request failed.
func reason(err error) string {
	switch {
	case errors.Is(err, errClosed), errors.Is(err, errCut):
		return err.Error()
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "timed out"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "timed out"
	}
	return err.Error()
}
