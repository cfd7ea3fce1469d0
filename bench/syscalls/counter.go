package syscalls

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/penstock/penstock/bench/process"
)

// patience bounds attaching to processes, and letting go of them.
const patience = 10 * time.Second

// ErrNone says that nothing here can count system calls.
var ErrNone = errors.New("no tool to count system calls: apt-get install strace, or run as root with perf")

// ErrNoMisses says that nothing here can count cache misses.
var ErrNoMisses = errors.New("no perf with cache-misses, which virtual machines as a rule do not have")

// An EventCounter counts events of one kind of processes while something goes on. A
// [*Counter] is one.
type EventCounter interface {
	Tool() string // its name
	Count(ctx context.Context, pids []int, during func() error) (int64, error)
}

// Counter counts system calls, or cache misses, with one tool. It is safe for concurrent use.
type Counter struct {
	tool  string
	path  string
	least int64 // the least count for probe's process if the tool works
	// attach starts the tool, which stays in the group.
	attach attach
}

type attach func(ctx context.Context, g *process.Group, path string, pids []int) (tracer, error)

// tracer is a tool that is attached to processes and counts.
type tracer interface {
	// detach lets go of the processes and returns the count.
	detach(ctx context.Context) (int64, error)
	// close releases its resources; its process ends with its group.
	close()
}

// Find returns the working counter that disturbs least. To test a counter, it counts the calls
// of a process that makes a known number of them. The error wraps ErrNone and describes the
// failure of each.
func Find() (*Counter, error) {
	var failed []error
	for _, c := range []*Counter{
		{tool: "perf", attach: perfOf(everyCall), least: probedCalls},
		{tool: "strace", attach: attachStrace, least: probedCalls},
	} {
		err := c.probe()
		if err == nil {
			return c, nil
		}
		failed = append(failed, err)
	}
	return nil, fmt.Errorf("%w (%w; %w)", ErrNone, failed[0], failed[1])
}

// FindMisses returns a counter of cache misses: perf, where the machine has such
// events and this user may count them. The error wraps ErrNoMisses.
func FindMisses() (*Counter, error) {
	c := &Counter{tool: "perf", attach: perfOf(cacheMisses), least: 1}
	if err := c.probe(); err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNoMisses, err)
	}
	return c, nil
}

// Tool returns the name of the tool: "perf" or "strace".
func (c *Counter) Tool() string { return c.tool }

// Count runs during and returns how many the processes made
// meanwhile: all their threads, and those that begin meanwhile, of their
// children too. It is attached before during begins and has let go before
// Count returns. An error of during is returned as it is.
func (c *Counter) Count(ctx context.Context, pids []int, during func() error) (int64, error) {
	if len(pids) == 0 {
		return 0, errors.New("syscalls: no processes")
	}
	g := process.NewGroup()
	defer g.Close()
	attaching, cancel := c.bound(ctx, "did not attach to %v", pids)
	defer cancel()
	t, err := c.attach(attaching, g, c.path, pids)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", c.tool, err)
	}
	defer t.close()
	if err := during(); err != nil {
		return 0, err
	}
	detaching, cancel := c.bound(ctx, "did not let go of %v", pids)
	defer cancel()
	n, err := t.detach(detaching)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", c.tool, err)
	}
	return n, nil
}

// bound limits the time of the tool for a step.
func (c *Counter) bound(ctx context.Context, failing string, pids []int) (context.Context, context.CancelFunc) {
	cause := fmt.Errorf(failing+" within %v", pids, patience)
	return context.WithTimeoutCause(ctx, patience, cause)
}

// probed is how often the process that probe has reads and writes. A call that was
// under way when the tool came or went may be missing.
const (
	probed      = 16
	probedCalls = 2*probed - 2
)

// probe counts the calls of a process that reads and writes a few times.
func (c *Counter) probe() error {
	var err error
	if c.path, err = exec.LookPath(c.tool); err != nil {
		return fmt.Errorf("%s: not installed", c.tool)
	}
	cat, err := exec.LookPath("cat")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	g := process.NewGroup()
	defer g.Close()
	child, err := g.Start(process.Spec{Name: "cat", Path: cat, Args: []string{"cat"}})
	if err != nil {
		return err
	}
	n, err := c.Count(ctx, []int{child.Pid()}, func() error {
		return parley(ctx, child, probed)
	})
	if err == nil && n < c.least {
		err = fmt.Errorf("%s: counts %d of a process of which there were at least %d", c.tool, n, c.least)
	}
	return err
}

// parley exchanges messages with a child that echoes them.
func parley(ctx context.Context, child *process.Child, times int) error {
	for i := range times {
		if err := child.Send(i); err != nil {
			return err
		}
		if _, err := child.Stdout(ctx); err != nil {
			return err
		}
	}
	return nil
}
