package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/process"
)

// Servers are endpoints in a separate process. Only one goroutine may use them.
type Servers struct {
	Addresses []string // address of each endpoint
	child     *process.Child
	frozen    bool
}

// Start starts a process with endpoints. It ends with the group at the latest. spec says how to start a process
// that calls [RunPart].
func Start(ctx context.Context, g *process.Group, spec process.Spec, p Plan) (*Servers, error) {
	var a addresses
	child, err := g.Begin(ctx, spec, p, &a)
	if err != nil {
		return nil, err
	}
	return &Servers{Addresses: a.Addresses, child: child}, nil
}

// Turn changes the state of endpoints at a time, and returns the actual time. Frozen is a state of the whole process,
// which any other state ends: the process is stopped by SIGSTOP. Its sockets go on listening, and the kernel accepts
// connections for them.
func (s *Servers) Turn(ctx context.Context, at time.Time, what Turn) (time.Time, error) {
	if !pause(ctx, nil, time.Until(at)) {
		return time.Time{}, context.Cause(ctx)
	}
	switch {
	case what.Failure == Frozen:
		s.frozen = true
		err := s.child.Freeze(ctx)
		return time.Now(), err
	case s.frozen:
		s.frozen = false
		err := s.child.Signal(syscall.SIGCONT)
		return time.Now(), err
	}
	if err := s.child.Send(what); err != nil {
		return time.Time{}, err
	}
	var done turned
	err := s.child.Receive(ctx, &done)
	return done.At, err
}

// Kill ends the process.
func (s *Servers) Kill() { s.child.Kill() }

// Part is the name of the part that has endpoints.
const Part = "failing-endpoints"

// Plan is the plan of a process of endpoints. The part reads it as its first line.
type Plan struct {
	Endpoints int           `json:"endpoints"`
	Service   time.Duration `json:"service"` // how long an answer takes
	Bytes     int           `json:"bytes"`   // size of an answer's body
}

// addresses is the first line that the part prints.
type addresses struct {
	Addresses []string `json:"addresses"`
}

// Turn is a new state for some endpoints of a process, by their indexes. The part reads Turns after the plan, and
// prints a turned for each.
type Turn struct {
	Failure   Failure       `json:"failure"`
	Endpoints []int         `json:"endpoints"`
	Delay     time.Duration `json:"delay"` // mean delay if the state is Slow
}

type turned struct {
	At time.Time `json:"at"`
}

// RunPart runs the part. It serves until ctx is done or in ends. Its input and output are lines of JSON.
func RunPart(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("the endpoints: %w", err)
		}
	}()
	var p Plan
	from, to := json.NewDecoder(in), json.NewEncoder(out)
	if err := from.Decode(&p); err != nil {
		return fmt.Errorf("the plan: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	var all []*endpoint
	at := addresses{}
	for range p.Endpoints {
		e, err := newEndpoint(p.Service, answerOf(p.Bytes))
		if err != nil {
			return err
		}
		all = append(all, e)
		at.Addresses = append(at.Addresses, e.listener.Addr().String())
		serving.Go(func() { _ = e.serve(ctx) })
	}
	if err := to.Encode(at); err != nil {
		return err
	}
	for {
		var t Turn
		if err := from.Decode(&t); err != nil {
			if err == io.EOF || ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("a turn: %w", err)
		}
		if err := t.apply(all); err != nil {
			return err
		}
		if err := to.Encode(turned{time.Now()}); err != nil {
			return err
		}
	}
}

func (t *Turn) apply(all []*endpoint) error {
	for _, i := range t.Endpoints {
		if i < 0 || i >= len(all) {
			return fmt.Errorf("no endpoint %d of %d", i, len(all))
		}
		if err := all[i].turn(t.Failure, t.Delay); err != nil {
			return fmt.Errorf("endpoint %d: %s: %w", i, t.Failure, err)
		}
	}
	return nil
}

// AnswerBytes returns the length of an answer with a body of the given length.
func AnswerBytes(body int) int { return len(answerOf(body)) }

func answerOf(n int) []byte {
	head := "HTTP/1.1 " + strconv.Itoa(http.StatusOK) + " OK\r\nConnection: close\r\nContent-Length: " + strconv.Itoa(n) + "\r\n\r\n"
	return append([]byte(head), bytes.Repeat([]byte{'x'}, n)...)
}
