package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/evidence"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/internal/perfevent"
)

type profileCmd struct {
	processFlags
	PID    int         `name:"pid" placeholder:"N" help:"Another process, of any program, with its children, instead of the one that is asked for its status."`
	For    cli.Timeout `default:"10s" placeholder:"TIME" help:"How long, in whole seconds from 1s to 1m. (default: ${default})"`
	Kernel bool        `negatable:"" default:"true" help:"With the kernel's frames, if perf events are allowed. (default: ${default})"`
	Output string      `short:"o" placeholder:"FILE" help:"Where to write it. (default: standard output)"`
	Format *string     `hidden:""`
}

// Help is kong's text below the summary.
func (*profileCmd) Help() string {
	return `Show the profile in a browser, as a flame graph or otherwise:

    penstock profile --for 10s -o cpu.pprof
    go tool pprof -http=: cpu.pprof`
}

// Run writes the CPU profile of a process.
func (c *profileCmd) Run(e *cli.Env) error {
	d := c.For.Duration()
	switch {
	case c.Format != nil:
		return cli.Usagef("profile: --format was removed: the profile is for pprof, which draws it: go tool pprof -http=: FILE")
	case d%time.Second != 0 || d < time.Second || d > admin.MaxProfile*time.Second:
		return cli.Usagef("profile: --for: write whole seconds from 1s to %ds", admin.MaxProfile)
	case c.PID < 0 || c.PID > 0 && !c.Kernel:
		return cli.Usagef("profile: --pid: write the number of a process; --no-kernel is for the running penstock alone (see: penstock profile --help)")
	case c.PID > 0:
		ctx, stop := untilStopped(e)
		defer stop()
		data, err := c.withKernel(ctx, e, c.PID)
		if errors.Is(err, fs.ErrNotExist) {
			err = &evidence.NoProcessError{PID: c.PID}
		}
		if err != nil {
			return failed(e, fmt.Errorf("profile: %w", err))
		}
		return c.write(e, data)
	}
	return c.ask(e, "profile", func(ctx context.Context, client *admin.Client) error {
		data, err := c.sample(ctx, e, client)
		if err != nil {
			return err
		}
		return c.write(e, data)
	})
}

func (c *profileCmd) write(e *cli.Env, data []byte) error {
	if c.Output == "" {
		_, err := e.Stdout.Write(data)
		return err
	}
	if err := file.Write(filepath.Clean(c.Output), data, 0o644); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	fmt.Fprintf(e.Stderr, "penstock: written to %s: go tool pprof -http=: %[1]s shows it\n", display.Text(c.Output))
	return nil
}

// samplesPerSecond of CPU time are taken by perf events; a prime, so that they do not follow timers.
const samplesPerSecond = 199

// sample takes the profile of a running penstock: by perf events, with the kernel's frames, or else by the runtime of the
// process. The reason for the latter is written to standard error.
func (c *profileCmd) sample(ctx context.Context, e *cli.Env, client *admin.Client) (data []byte, err error) {
	cause := errors.New("--no-kernel")
	if c.Kernel {
		if data, cause = c.ofRunning(ctx, e, client); cause == nil {
			return data, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	data, err = client.Profile(ctx, int(c.For.Duration()/time.Second))
	if err == nil {
		fmt.Fprintf(e.Stderr, "penstock: the profile has no frames of the kernel (%v): the Go runtime samples user stacks, in which a system call is one frame\n", cause)
	}
	return data, err
}

// ofRunning samples the process that answers, if it is of this machine.
func (c *profileCmd) ofRunning(ctx context.Context, e *cli.Env, client *admin.Client) ([]byte, error) {
	status, err := client.Status(ctx)
	if err != nil {
		return nil, err
	}
	if err := isPenstock(status.PID); err != nil {
		return nil, err
	}
	return c.withKernel(ctx, e, status.PID)
}

// errAnother is the cause of a profile without the kernel's frames if the number of the process is one of another machine or
// PID namespace, such as behind a forwarded socket.
var errAnother = errors.New("on this machine that number is of no penstock")

// isPenstock returns an error unless a process runs the program of this one, in any version.
func isPenstock(pid int) error {
	own, err := buildinfo.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	other, err := buildinfo.ReadFile(fmt.Sprintf("/proc/%d/exe", pid))
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("process %d is another user's: %w", pid, fs.ErrPermission)
	}
	if err != nil || own.Path != other.Path {
		return fmt.Errorf("process %d: %w", pid, errAnother)
	}
	return nil
}

// withKernel samples a process and its children by perf events.
func (c *profileCmd) withKernel(ctx context.Context, e *cli.Env, pid int) ([]byte, error) {
	p, err := perfevent.Sample(ctx, evidence.WithChildren([]int{pid}), c.For.Duration(), samplesPerSecond)
	if err != nil {
		return nil, err
	}
	if p.Unnamed {
		fmt.Fprintln(e.Stderr, "penstock: the kernel's functions have no names: kernel.kptr_restrict hides them from this user")
	}
	if p.Lost > 0 {
		fmt.Fprintf(e.Stderr, "penstock: %d samples are lost: the command did not get the CPU in time\n", p.Lost)
	}
	var out bytes.Buffer
	if err := p.Write(&out); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	return out.Bytes(), nil
}
