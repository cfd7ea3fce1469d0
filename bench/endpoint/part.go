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
	"time"
)

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
func RunPart(ctx context.Context, in io.Reader, out io.Writer) error {
	if err := runPart(ctx, in, out); err != nil {
		return fmt.Errorf("the endpoints: %w", err)
	}
	return nil
}

func runPart(ctx context.Context, in io.Reader, out io.Writer) error {
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

// answerOf returns an answer with a body of n bytes.
func answerOf(n int) []byte {
	head := "HTTP/1.1 " + strconv.Itoa(http.StatusOK) + " OK\r\nConnection: close\r\nContent-Length: " + strconv.Itoa(n) + "\r\n\r\n"
	return append([]byte(head), bytes.Repeat([]byte{'x'}, n)...)
}
