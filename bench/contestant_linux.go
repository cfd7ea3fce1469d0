package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/proxy"
)

// Contestant is a proxy in front of the rig's origin.
type Contestant struct {
	Name    string
	Address string // where it listens
	child   *process.Child
	// summary is the newest account of a contestant that keeps one, nil for
	// one that does not.
	summary *proxy.Summary
}

// Summary returns the contestant's newest account of itself, nil if it keeps
// none.
func (c *Contestant) Summary() *proxy.Summary { return c.summary }

// Pid returns the id of the contestant's process.
func (c *Contestant) Pid() int { return c.child.Pid() }

// Done is closed when the contestant's process is gone.
func (c *Contestant) Done() <-chan struct{} { return c.child.Done() }

// Err waits for the end of the contestant and describes it.
func (c *Contestant) Err() error { return describe(c.child.Err()) }

// AddRival adds the plain proxy of package rival.
func (r *Rig) AddRival(ctx context.Context, name string) (*Contestant, error) {
	child, address, err := r.serving(ctx, name, PartRival, r.address)
	if err != nil {
		return nil, err
	}
	return &Contestant{Name: name, Address: address, child: child}, nil
}

// AddPenstock adds `penstock proxy`, listening on listen, with further flags.
func (r *Rig) AddPenstock(ctx context.Context, name, listen string, flags ...string) (*Contestant, error) {
	args := append([]string{"--listen", listen, "--to", r.address, "--log", "json"}, flags...)
	child, err := r.group.Start(r.program.spec("penstock proxy", r.program.Proxy, args...))
	if err != nil {
		return nil, err
	}
	c := &Contestant{Name: name, child: child}
	ctx, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	for c.Address == "" {
		line, err := child.Stderr(ctx)
		if err != nil {
			return nil, r.notStarted(child, err)
		}
		var log struct{ Msg, Address string }
		if json.Unmarshal([]byte(line), &log) == nil && log.Msg == "listening" {
			c.Address = log.Address
		}
	}
	c.summary = new(proxy.Summary)
	return c, c.settle(ctx)
}

// settle asks a contestant that keeps an account for it until no connection is
// left in it, so that all of what was moved is counted. It fails when ctx ends
// before that. Others are content.
func (c *Contestant) settle(ctx context.Context) error {
	if c.summary == nil {
		return nil
	}
	for pause := time.Millisecond; ; pause *= 2 {
		if _, err := c.Ask(ctx); err != nil {
			return err
		}
		held := c.summary.Connections.Active
		if held == 0 {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("bench: %s still holds %d connections after all were closed", c.Name, held)
		}
	}
}

// Ask has the contestant account for itself up to now, by SIGUSR1. Only one
// that keeps an account answers.
func (c *Contestant) Ask(ctx context.Context) (*proxy.Summary, error) {
	if err := c.child.Signal(syscall.SIGUSR1); err != nil {
		return nil, err
	}
	line, err := c.child.Stdout(ctx)
	if err != nil {
		return nil, fmt.Errorf("bench: summary of %s: %w", c.Name, err)
	}
	s := new(proxy.Summary)
	if err := json.Unmarshal([]byte(line), s); err != nil {
		return nil, fmt.Errorf("bench: summary of %s: %w", c.Name, err)
	}
	c.summary = s
	return s, nil
}

// Stop ends a contestant the polite way, by SIGTERM, and fails if that does
// not lead to exit status 0 within d.
func (c *Contestant) Stop(d time.Duration) error { return c.child.Stop(syscall.SIGTERM, d) }
