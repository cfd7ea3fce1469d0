package load

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/traffic"
)

// checkTime is how long one check may take, unless Grace is shorter.
const checkTime = 5 * time.Second

// question is a check to make.
type question struct {
	name string
	ask  func(*examiner) error
}

// questions are all checks, in the order in which they are made.
func questions() []question {
	var all []question
	for _, n := range []int64{0, 1, 4095, 4097, 65535, 65537, 1<<20 + 1, 8<<20 - 1} {
		all = append(all, question{fmt.Sprintf("%d bytes each way", n), func(e *examiner) error {
			return e.exchange(exchange{up: n, down: n})
		}})
	}
	return append(all, []question{
		{"the client ends first", func(e *examiner) error {
			return e.exchange(exchange{up: 100_003, down: 3<<20 + 7, order: clientFirst})
		}},
		{"the server ends first", func(e *examiner) error {
			return e.exchange(exchange{up: 3<<20 + 7, down: 100_003, order: serverFirst})
		}},
		{"the client ends first and sends nothing", func(e *examiner) error {
			return e.exchange(exchange{down: 65_537, order: clientFirst})
		}},
		{"the server ends first and sends nothing", func(e *examiner) error {
			return e.exchange(exchange{up: 65_537, order: serverFirst})
		}},
		{"the server answers and closes", (*examiner).once},
		{"a slow client", func(e *examiner) error { return e.exchange(exchange{up: 1000, down: 6<<20 + 1, slowClient: true}) }},
		{"a slow server", func(e *examiner) error { return e.exchange(exchange{up: 6<<20 + 1, down: 1000, slowServer: true}) }},
		{"200 connections at once", (*examiner).many},
		{"a reset by the client", (*examiner).resetByClient},
		{"a reset by the server", (*examiner).resetByServer},
		{"a client that vanishes from a download", (*examiner).vanish},
	}...)
}

// correct makes all checks, one after the other.
func (r *Runner) correct(ctx context.Context, p Plan) (Result, error) {
	var result Result
	for _, q := range questions() {
		e := &examiner{r: r, ctx: ctx, address: p.Address, deadline: time.Now().Add(min(checkTime, r.grace()))}
		err := q.ask(e)
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		check := Check{Name: q.name, OK: err == nil}
		if err != nil {
			check.Said = err.Error()
			result.Failed++
		}
		result.Connections += e.connections
		result.Checks = append(result.Checks, check)
	}
	return result, nil
}

// examiner makes one check.
type examiner struct {
	r           *Runner
	ctx         context.Context // its end is that of all connections
	address     string
	deadline    time.Time
	connections int64 // that ended well
}

// dial connects; hang up by the function returned.
func (e *examiner) dial(receiveBuffer int) (*talk, func(), error) {
	t, err := e.r.dialTalk(e.ctx, e.address, e.deadline, receiveBuffer)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting: %w", said(err))
	}
	stop := context.AfterFunc(e.ctx, func() { _ = t.Close() })
	return t, func() { stop(); _ = t.Close() }, nil
}

// script sends s with a token of its own.
func (e *examiner) script(t *talk, s traffic.Script) (traffic.Script, error) {
	s.Seed = e.r.nextSeed()
	s.Token = newToken()
	if _, err := t.Write(traffic.AppendScript(nil, s)); err != nil {
		return s, fmt.Errorf("sending the request: %w", said(err))
	}
	return s, nil
}
