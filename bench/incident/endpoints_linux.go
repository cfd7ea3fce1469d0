package incident

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

// endpointsPlan is the first line that the part of the endpoints reads.
type endpointsPlan struct {
	Endpoints int           `json:"endpoints"`
	Service   time.Duration `json:"service"`
	Bytes     int           `json:"bytes"` // of an answer's body
}

// addresses is the first line that it prints.
type addresses struct {
	Addresses []string `json:"addresses"`
}

// turn is what it reads after that, for each of which it prints a turned.
type turn struct {
	Failure   Failure       `json:"failure"`
	Endpoints []int         `json:"endpoints"`
	Delay     time.Duration `json:"delay"`
}

type turned struct {
	At time.Time `json:"at"`
}

// runEndpoints is the part of the endpoints.
func runEndpoints(ctx context.Context, in io.Reader, out io.Writer) error {
	var p endpointsPlan
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
		var t turn
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

func (t *turn) apply(all []*endpoint) error {
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

// answerOf is an answer with a body of so many bytes.
func answerOf(n int) []byte {
	head := "HTTP/1.1 " + strconv.Itoa(http.StatusOK) + " OK\r\nConnection: close\r\nContent-Length: " + strconv.Itoa(n) + "\r\n\r\n"
	return append([]byte(head), bytes.Repeat([]byte{'x'}, n)...)
}
