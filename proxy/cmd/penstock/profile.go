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
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/internal/flamegraph"
	"github.com/penstock/penstock/proxy/internal/perfevent"
)

type profileCmd struct {
	processFlags
	For    cli.Timeout `default:"10s" placeholder:"TIME" help:"How long, in whole seconds from 1s to 1m. (default: ${default})"`
	Format string      `enum:"svg,folded,pprof" default:"svg" help:"A flame graph (svg), lines of stacks (folded), or the profile for go tool pprof (pprof). (default: ${default})"`
	Kernel bool        `negatable:"" default:"true" help:"With the kernel's frames, if perf events are allowed. (default: ${default})"`
	Output string      `short:"o" placeholder:"FILE" help:"Where to write it. (default: standard output)"`
}

// Run writes the CPU profile of the running process.
func (c *profileCmd) Run(e *cli.Env) error {
	d := c.For.Duration()
	if d%time.Second != 0 || d < time.Second || d > admin.MaxProfile*time.Second {
		return cli.Usagef("profile: --for: write whole seconds from 1s to %ds", admin.MaxProfile)
	}
	return c.ask(e, "profile", func(ctx context.Context, client *admin.Client) error {
		data, kernel, err := c.sample(ctx, e, client)
		if err != nil {
			return err
		}
		out, err := c.convert(data, kernel)
		if err != nil {
			return err
		}
		if c.Output == "" {
			_, err = e.Stdout.Write(out)
			return err
		}
		if err := file.Write(filepath.Clean(c.Output), out, 0o644); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		fmt.Fprintf(e.Stderr, "penstock: written to %s\n", display.Text(c.Output))
		return nil
	})
}

// samplesPerSecond of CPU time are taken by perf events; a prime, so that they do not follow timers.
const samplesPerSecond = 199

// sample takes a profile in the format of pprof: by perf events, with the kernel's frames, or else by the runtime of the
// process. The reason for the latter is written to standard error.
func (c *profileCmd) sample(ctx context.Context, e *cli.Env, client *admin.Client) (data []byte, kernel bool, err error) {
	cause := errors.New("--no-kernel")
	if c.Kernel {
		if data, cause = c.withKernel(ctx, e, client); cause == nil {
			return data, true, nil
		}
		if ctx.Err() != nil {
			return nil, false, ctx.Err()
		}
	}
	data, err = client.Profile(ctx, int(c.For.Duration()/time.Second))
	if err == nil {
		fmt.Fprintf(e.Stderr, "penstock: the profile has no frames of the kernel (%v): the Go runtime samples user stacks, in which a system call is one frame\n", cause)
	}
	return data, false, err
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

func (c *profileCmd) withKernel(ctx context.Context, e *cli.Env, client *admin.Client) ([]byte, error) {
	status, err := client.Status(ctx)
	if err != nil {
		return nil, err
	}
	if err := isPenstock(status.PID); err != nil {
		return nil, err
	}
	p, err := perfevent.Sample(ctx, status.PID, c.For.Duration(), samplesPerSecond)
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

// convert returns a profile in the format that is asked for.
func (c *profileCmd) convert(profile []byte, kernel bool) ([]byte, error) {
	if c.Format == "pprof" {
		return profile, nil
	}
	stacks, err := flamegraph.Parse(profile)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if c.Format == "folded" {
		err = stacks.WriteFolded(&out)
		return out.Bytes(), err
	}
	title := fmt.Sprintf("CPU time of penstock in %v", c.For.Duration())
	if !kernel {
		title += ", without the kernel's frames"
	}
	err = stacks.WriteSVG(&out, title, func(ns int64) string { return time.Duration(ns).String() })
	return out.Bytes(), err
}
