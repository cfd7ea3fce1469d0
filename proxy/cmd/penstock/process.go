package main

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
)

type processCmd struct {
	List  processListCmd  `cmd:"" default:"withargs" help:"Show the state of the process."`
	Drain processDrainCmd `cmd:"" help:"Drain the process, as SIGTERM does: it accepts no more clients, and resets the sessions that are left after --drain-timeout. Under systemd use systemctl stop: after such a reset, Restart=on-failure starts the process again."`
}

type processListCmd struct{ adminFlags }

func (c *processListCmd) Run(e *cli.Env) error {
	return c.ask(e, "process", func(ctx context.Context, client *admin.Client) error {
		s, err := client.Status(ctx)
		if err != nil {
			return err
		}
		s.Listeners, s.Upstreams = nil, nil
		return writeStatus(e.Stdout, &s, time.Now(), true)
	})
}

type processDrainCmd struct{ adminFlags }

// Run drains the process, and prints how many sessions it waits for, and how long.
func (c *processDrainCmd) Run(e *cli.Env) error {
	return c.ask(e, "process drain", func(ctx context.Context, client *admin.Client) error {
		s, err := client.Status(ctx)
		if err != nil {
			return err
		}
		if drains(&s) {
			return writeDrain(e.Stdout, &s, "drains already", "was asked earlier to drain: it drains at ")
		}
		if err := client.Drain(ctx); err != nil {
			return err
		}
		s, begun := drainOf(ctx, client)
		if !begun {
			return say(e.Stdout, "the process drains, and has ended or ends now\n")
		}
		return writeDrain(e.Stdout, &s, "drains", "drains at ")
	})
}

// drains reports whether a process drains, or will soon.
func drains(s *admin.Status) bool { return s.State == admin.Draining || !s.DrainStarts.IsZero() }

// drainWait is how long the requested drain may take to appear in the status.
const drainWait = 2 * time.Second

// drainOf returns the status of a process that was asked to drain. It waits, but not for long, until the status shows
// the drain. It returns false if the process no longer answers.
func drainOf(ctx context.Context, client *admin.Client) (s admin.Status, begun bool) {
	for until := time.Now().Add(drainWait); ; {
		s, err := client.Status(ctx)
		switch now := time.Now(); {
		case err != nil:
			return s, false
		case s.State == admin.Draining, s.DrainStarts.After(now), now.After(until):
			return s, true
		}
		select {
		case <-ctx.Done():
			return s, true
		case <-time.After(drainWait / 100):
		}
	}
}

func writeDrain(w io.Writer, s *admin.Status, drains, starts string) error {
	ends := ", however long they take"
	if !s.DrainEnds.IsZero() {
		ends = ", until " + s.DrainEnds.Local().Format(time.DateTime)
	}
	sessions := count(int(s.Connections.Active), "session")
	switch {
	case s.State != admin.Draining && !s.DrainStarts.IsZero():
		return say(w, "the process %s%s, and accepts clients until then: it has %s\n", starts, s.DrainStarts.Local().Format(time.DateTime), sessions)
	case s.State != admin.Draining:
		return say(w, "the process will drain soon: it has %s\n", sessions)
	case s.Connections.Active == 0:
		return say(w, "the process %s: it has no sessions, and ends\n", drains)
	}
	return say(w, "the process %s: it waits for %s%s\n", drains, sessions, ends)
}

// A leaving says whether a process drains or will drain, and since when.
type leaving struct {
	mu     sync.Mutex
	begun  bool
	drains time.Time
}

// begin notes that the process leaves, and drains after a time.
func (l *leaving) begin(after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun, l.drains = true, time.Now().Add(after)
}

// get reports whether the process leaves, and when it drains.
func (l *leaving) get() (drains time.Time, leaves bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drains, l.begun
}

// leave begins the end of the process: it is no longer ready, and its configuration no longer changes. During the delay
// it still accepts clients, unless serving ends; then it drains. Its status can be queried until a successor takes over
// the admin socket. A successor can take over the address of the metrics at once.
func (r *daemon) leave(serving context.Context) {
	r.notify(r.notifier.Stopping(r.drainDelay + r.options.DrainTimeout + 2*finalFlush))
	r.leaves.begin(r.drainDelay)
	go func() { // the drain does not wait for a file system that hangs
		r.keeper.Close()
		r.closeState()
	}()
	if r.drainDelay > 0 {
		r.log.Info("the process is no longer ready, and accepts clients until it drains", "drain_delay", r.drainDelay.String())
		delay := time.NewTimer(r.drainDelay)
		defer delay.Stop()
		select {
		case <-delay.C:
		case <-serving.Done():
		}
	}
	r.scrape.Leave()
}

// alive returns when every loop has responded, or an error when ctx ends. Before the load balancer is open there are
// no loops.
func (r *daemon) alive(ctx context.Context) error {
	select {
	case <-r.opened:
		return r.Alive(ctx)
	default:
		return nil
	}
}
