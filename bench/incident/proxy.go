package incident

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/process"
)

// An Event is something that the load balancer has found out and logged about an endpoint or an upstream.
type Event struct {
	// Seconds is the time since the incident began; it is negative before that.
	Seconds float64 `json:"seconds"`
	Kind    string  `json:"kind"`    // health, ejection, circuit
	Subject string  `json:"subject"` // "endpoint shop/e0"
	State   string  `json:"state"`
	Bad     bool    `json:"bad"` // the subject is kept away from now on
	Cause   string  `json:"cause,omitempty"`

	at time.Time
}

// front is `penstock run`, with its log.
type front struct {
	child   *process.Child
	address string
	done    sync.WaitGroup

	mu     sync.Mutex
	events []Event
}

// record is a line of the log.
type record struct {
	Time                                                  time.Time
	Level, Msg, Address, Upstream, Endpoint, State, Cause string
}

// startFront starts `penstock run` with a file, and waits until it listens.
func (s *Setup) startFront(ctx context.Context, text string) (*front, error) {
	file := filepath.Join(s.Dir, "penstock.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	child, err := s.Group.Start(s.Program.Penstock("penstock run", s.Program.Run, "--config", file, "--log", "json"))
	if err != nil {
		return nil, err
	}
	b := &front{child: child}
	for b.address == "" {
		r, err := b.next(ctx)
		if err != nil {
			child.Kill()
			return nil, err
		}
		if r.Msg == "listening" {
			b.address = r.Address
		}
	}
	b.done.Go(b.watch)
	return b, nil
}

func (b *front) next(ctx context.Context) (r record, err error) {
	line, err := b.child.Stderr(ctx)
	if err == nil {
		_ = json.Unmarshal([]byte(line), &r) // a line that is not JSON is ignored
	}
	return r, err
}

// watch collects the log's events about endpoints until the log ends.
func (b *front) watch() {
	for {
		r, err := b.next(context.Background())
		if err != nil {
			return
		}
		if r.Upstream == "" || r.State == "" {
			continue
		}
		subject := "upstream " + r.Upstream
		if r.Endpoint != "" {
			subject = "endpoint " + r.Upstream + "/" + r.Endpoint
		}
		b.mu.Lock()
		b.events = append(b.events, Event{Kind: r.Msg, Subject: subject, State: r.State, Bad: r.Level == "WARN", Cause: r.Cause, at: r.Time})
		b.mu.Unlock()
	}
}

func (b *front) end() {
	b.child.Kill()
	b.done.Wait()
}

// told returns the events so far, with their times relative to since.
func (b *front) told(since time.Time) []Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := append([]Event{}, b.events...)
	for i := range events {
		events[i].Seconds = events[i].at.Sub(since).Seconds()
	}
	return events
}
