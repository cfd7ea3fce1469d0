package observed

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"

	"github.com/penstock/penstock/bench/pauses"
	"github.com/penstock/penstock/bench/rival"
	"github.com/penstock/penstock/proxy/admin"
)

// Form is which proxy.
type Form string

// The forms.
const (
	Penstock Form = "penstock"
	// Relay is a proxy by package relay, with two goroutines for a session.
	Relay Form = "relay"
	// Goroutines are two for each session, which copy through 32 KiB each.
	Goroutines Form = "goroutines"
)

// Forms returns all of them.
func Forms() []Form { return []Form{Penstock, Relay, Goroutines} }

// Question is a line of JSON on standard input.
type Question struct {
	// Collect has garbage collected before the answer, by all rules of the
	// runtime.
	Collect bool `json:"collect,omitempty"`
	// Pauses asks for those since the last Question of this kind, or since the
	// process began.
	Pauses bool `json:"pauses,omitempty"`
}

// Answer is the line of JSON on standard output that follows a Question.
type Answer struct {
	Summary *admin.Summary `json:"summary,omitempty"` // Penstock's own
	Pauses  *pauses.Pauses `json:"pauses,omitempty"`
}

// Listening is the first line on standard output.
type Listening struct {
	Address string `json:"address"`
}

// Serve runs a proxy on a free port of loopback, in front of upstream, for so
// many sessions at most (Penstock), until ctx is done or in ends. It says where
// it listens, and answers questions.
func Serve(ctx context.Context, form Form, upstream string, most int, in io.Reader, out io.Writer) error {
	if !slices.Contains(Forms(), form) {
		return fmt.Errorf("observed: no proxy %q: write one of %v", form, Forms())
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	o := &observer{meter: pauses.New(), in: in, out: json.NewEncoder(out), end: end}
	var err error
	switch form {
	case Penstock:
		err = o.penstock(ctx, upstream, most)
	case Relay:
		err = o.goroutines(ctx, upstream, rival.ServeRelay)
	default:
		err = o.goroutines(ctx, upstream, rival.ServeCopying)
	}
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	if err != nil {
		return fmt.Errorf("observed: %s: %w", form, err)
	}
	return nil
}

// observer answers for a proxy.
type observer struct {
	meter   *pauses.Meter
	in      io.Reader
	out     *json.Encoder
	end     context.CancelCauseFunc // ends the proxy
	summary func() admin.Summary    // nil if it keeps none
}

// goroutines serves a rival.
func (o *observer) goroutines(ctx context.Context, upstream string, serve func(context.Context, net.Listener, string) error) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	o.listening(l.Addr().String())
	return serve(ctx, l, upstream)
}

// listening says so, once, and begins to answer.
func (o *observer) listening(address string) {
	if err := o.out.Encode(Listening{address}); err != nil {
		o.end(err)
		return
	}
	go o.answers()
}

// answers answers questions until there are no more, which is the end.
func (o *observer) answers() {
	lines := bufio.NewScanner(o.in)
	for lines.Scan() {
		var q Question
		err := json.Unmarshal(lines.Bytes(), &q)
		if err == nil {
			err = o.out.Encode(o.answer(&q))
		}
		if err != nil {
			o.end(err)
			return
		}
	}
	o.end(lines.Err())
}

func (o *observer) answer(q *Question) *Answer {
	a := new(Answer)
	if q.Collect {
		runtime.GC()
	}
	if q.Pauses {
		p := o.meter.Since()
		a.Pauses = &p
	}
	if o.summary != nil {
		s := o.summary()
		a.Summary = &s
	}
	return a
}
