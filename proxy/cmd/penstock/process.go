package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
)

type processCmd struct {
	List  processListCmd  `cmd:"" default:"withargs" help:"Show the state of the process."`
	Drain processDrainCmd `cmd:"" help:"Drain the process: it accepts no more clients, and ends with its last session, as by SIGTERM."`
}

type processListCmd struct{ adminFlags }

// Run prints the part of the status that is about the process.
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

// Run drains the process, and prints how long and how many sessions it waits for.
func (c *processDrainCmd) Run(e *cli.Env) error {
	return c.ask(e, "process drain", func(ctx context.Context, client *admin.Client) error {
		s, err := client.Status(ctx)
		if err != nil {
			return err
		}
		if drains(&s) {
			return writeDrain(e.Stdout, &s, "drains already", "was asked to drain already: it does at ")
		}
		if err := client.Drain(ctx); err != nil {
			return err
		}
		s, begun := drainOf(ctx, client)
		if !begun {
			_, err := fmt.Fprintln(e.Stdout, "the process drains: it has ended, or ends now")
			return err
		}
		return writeDrain(e.Stdout, &s, "drains", "drains at ")
	})
}

// drains reports whether a process drains, or is about to.
func drains(s *admin.Status) bool { return s.State == admin.Draining || !s.DrainStarts.IsZero() }

// drainWait is how long a process may take until its status has the drain that it was asked for.
const drainWait = 2 * time.Second

// drainOf returns the status of a process that was asked to drain, once it has begun; false: there is no answer any
// more. A process that takes long has one that is not about the drain.
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

// writeDrain prints a drain, or when one begins.
func writeDrain(w io.Writer, s *admin.Status, drains, starts string) error {
	ends := ", however long they take"
	if !s.DrainEnds.IsZero() {
		ends = ", until " + s.DrainEnds.Local().Format(time.DateTime)
	}
	sessions := count(int(s.Connections.Active), "session")
	switch {
	case s.State != admin.Draining && !s.DrainStarts.IsZero():
		_, err := fmt.Fprintf(w, "the process %s%s, and accepts clients until then: it has %s\n", starts, s.DrainStarts.Local().Format(time.DateTime), sessions)
		return err
	case s.State != admin.Draining:
		_, err := fmt.Fprintf(w, "the process %s soon: it was asked to, and has %s\n", drains, sessions)
		return err
	case s.Connections.Active == 0:
		_, err := fmt.Fprintf(w, "the process %s: it has no sessions, and ends\n", drains)
		return err
	}
	_, err := fmt.Fprintf(w, "the process %s: it waits for %s%s\n", drains, sessions, ends)
	return err
}

// A leaving is whether a process is about to drain, or drains, and since when it does.
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

// leave begins the end of the process: it is not ready, and no configuration is changed any more. For the
// delay, unless serving ends, it still accepts clients. After it the process drains. Its status can be queried
// until a successor wants its admin socket. A successor can have the address of the metrics at once then.
func (r *daemon) leave(serving context.Context) {
	r.notify(r.notifier.Stopping(r.drainDelay + r.options.DrainTimeout + 2*finalFlush))
	r.leaves.begin(r.drainDelay)
	r.keeper.Close()
	r.closeState()
	if r.drainDelay > 0 {
		r.log.Info("not ready any more, and accepting until the drain", "drain_delay", r.drainDelay.String())
		delay := time.NewTimer(r.drainDelay)
		defer delay.Stop()
		select {
		case <-delay.C:
		case <-serving.Done():
		}
	}
	r.scrape.Leave()
}

// alive returns when every loop has responded, or with an error when ctx ends. Before the load balancer is open
// there is none.
func (r *daemon) alive(ctx context.Context) error {
	select {
	case <-r.opened:
		return r.Alive(ctx)
	default:
		return nil
	}
}
