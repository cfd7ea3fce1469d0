package soak

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/contestant"
)

// config is a soak of a toy with a fault.
func config(fault string) *Config {
	return &Config{
		Program:  contestant.Program{Path: "/proc/self/exe", Name: childName, Proxy: []string{fault}},
		Duration: 3 * time.Second, Round: 1500 * time.Millisecond, Longest: 100 * time.Millisecond,
		Connections: 8, Seed: 4, Patience: 10 * time.Second,
	}
}

// done returns how often a report counts an action.
func done(r *Report, a action) int64 { return r.Actions[a].N }

func TestAFaithfulProxyPasses(t *testing.T) {
	told := 0
	cfg := config(faithful)
	cfg.Watch = func(p Progress) { told++ }
	cfg.Duration, cfg.Round = 6*time.Second, 3*time.Second
	r, err := Run(t.Context(), cfg)
	if err != nil || len(r.Violations) > 0 {
		t.Fatalf("%v, %q", err, r.Violations)
	}
	for _, a := range []action{opened, silentClients, halfCloses, quietResets, resetsSeen, urgentBytes, messages, stalls, tinyBuffers, summaries} {
		if done(r, a) == 0 {
			t.Errorf("not done: %s", actionNames[a])
		}
	}
	if done(r, clientResets)+done(r, serverResets)+done(r, shutResets)+done(r, left) == 0 {
		t.Error("nothing was torn down")
	}
	for d := range 2 {
		sent, torn := r.Exact[d].Sent, r.Torn[d]
		if sent == 0 || r.Exact[d].Received != sent || torn.Received > torn.Sent || r.Moved[d] < sent+torn.Received {
			t.Errorf("direction %d: %+v, %+v, moved %d", d, r.Exact[d], torn, r.Moved[d])
		}
	}
	if told == 0 || len(r.Rounds) < 2 || r.Rounds[0].Rough || !r.Rounds[1].Rough {
		t.Errorf("reported %d times, %+v", told, r.Rounds)
	}
}

func TestFaultsAreSeen(t *testing.T) {
	turns := make(chan struct{}, 2) // each is work for a CPU
	for fault, want := range map[string]string{
		losesAByte:   "client: expected",
		swapsABit:    "server: expected the bytes that the client had sent, got others",
		endsResets:   "expected a reset, which the ",
		leaks:        "descriptors of the proxy, socket: expected 2, got 3",
		hides:        "summary: client to endpoint: expected",
		invents:      "summary: lost: expected at most",
		dropsUrgent:  "expected the bytes that the ",
		keepsEnds:    ", got nothing for 2",
		resetsAll:    "expected no reset, got one",
		forgets:      "still holds 1 connections",
		endsBadly:    "expected exit status 0 after SIGTERM with no connection, got",
		dies:         "the proxy: expected to run, got",
		lastByteLate: "expected",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			turns <- struct{}{}
			defer func() { <-turns }()
			cfg := config(fault)
			cfg.settling = time.Second
			switch fault {
			case keepsEnds:
				cfg.Patience = 2 * time.Second
			case forgets: // which is seen at the end alone: nothing else may take as long
				cfg.Patience = 10 * time.Second
			}
			r, err := Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(r.Violations, func(v string) bool { return strings.Contains(v, want) }) {
				t.Errorf("got %q, want %q", r.Violations, want)
			}
		})
	}
}

// TestMessages: connections that send small messages are opened until so many have come, whatever the time.
func TestMessages(t *testing.T) {
	cfg := config(faithful)
	cfg.Duration, cfg.Round, cfg.Messages = time.Nanosecond, 0, 3000
	r, err := Run(t.Context(), cfg)
	if err != nil || len(r.Violations) > 0 {
		t.Fatalf("%v, %q", err, r.Violations)
	}
	if sent, come := done(r, messages), done(r, arrivals); come < cfg.Messages || sent < come {
		t.Errorf("%d messages were sent, %d have come, want %d", sent, come, cfg.Messages)
	}
}

func TestAnEndOfItsContext(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cfg := config(faithful)
	cfg.Duration, cfg.Round = time.Hour, time.Hour
	cfg.Watch = func(Progress) { cancel(why) }
	r, err := Run(ctx, cfg)
	if !errors.Is(err, why) || r == nil || len(r.Violations) > 0 || done(r, opened) == 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestAProxyThatDoesNotStart(t *testing.T) {
	cfg := config(faithful)
	cfg.Program.Path = "/does/not/exist"
	if r, err := Run(t.Context(), cfg); err == nil || r != nil {
		t.Errorf("%v, %+v", err, r)
	}
}
