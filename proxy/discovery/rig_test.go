package discovery_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/discovery"
)

// A rig watches a source and records its updates.
type rig struct {
	t       *testing.T
	clock   *manual
	source  discovery.Source
	updates chan []discovery.Endpoint
	log     *software.Output
	pending time.Duration // time that the source waits
}

// logged returns how often the log has a text.
func (r *rig) logged(text string) int { return strings.Count(r.log.String(), text) }

// lookups watches names by cfg, with a clock that is moved by hand.
func lookups(t *testing.T, cfg discovery.DNSConfig) *rig {
	t.Helper()
	r := &rig{t: t, clock: newManual(), log: new(software.Output)}
	cfg.Clock, cfg.Log = r.clock, slog.New(slog.NewTextHandler(r.log, nil))
	if cfg.Random == nil {
		cfg.Random = func() float64 { return 0 }
	}
	source, err := discovery.NewDNS(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r.watch(source)
}

func (r *rig) watch(source discovery.Source) *rig {
	r.source, r.updates = source, make(chan []discovery.Endpoint, 1000)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		source.Watch(ctx, func(e []discovery.Endpoint) { r.updates <- e })
	}()
	r.t.Cleanup(func() { cancel(); <-ended })
	return r
}

// told returns the one update since the last call. It fails the test if there are none or
// several. It must be called while the source waits.
func (r *rig) told() string {
	r.t.Helper()
	if len(r.updates) != 1 {
		r.t.Fatalf("%d updates, want one; status %+v", len(r.updates), r.source.Status())
	}
	return text(<-r.updates)
}

// next returns the next update, whenever it arrives.
func (r *rig) next() string {
	r.t.Helper()
	select {
	case e := <-r.updates:
		return text(e)
	case <-time.After(patience):
		r.t.Fatalf("no update; status %+v", r.source.Status())
		return ""
	}
}

// text writes endpoints as "address*weight", with "b" for backup.
func text(endpoints []discovery.Endpoint) string {
	var words []string
	for _, e := range endpoints {
		word := fmt.Sprintf("%s*%d", e.Address, e.Weight)
		if e.Backup {
			word += "b"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func (r *rig) silence() {
	r.t.Helper()
	if len(r.updates) != 0 {
		r.t.Fatalf("received the update %q, want none", text(<-r.updates))
	}
}

// again lets the source's pause pass, if it is in one, waits until it pauses again, and
// returns for how long.
func (r *rig) again() time.Duration {
	r.t.Helper()
	r.clock.pass(r.pending)
	r.pending = r.clock.pause(r.t)
	return r.pending
}

// pause is again, and checks for how long.
func (r *rig) pause(want time.Duration) {
	r.t.Helper()
	if d := r.again(); d != want {
		r.t.Errorf("the source waits for %v, want %v", d, want)
	}
}

func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("got %v\nwant %v", got, want)
	}
}
