package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/process"
)

// patience is Rig.Patience of a new rig.
const patience = 10 * time.Second

// Program is how to run the program that contains the parts and the proxy.
type Program struct {
	Path string // of the executable
	Name string // its first argument
	// Part and Proxy are the arguments that lead to RunPart (the part's name
	// and upstream follow) and to the proxy (its flags follow).
	Part, Proxy []string
	// Env is the children's environment; nil for this process's own.
	Env []string
}

// spec is the program with some arguments.
func (p *Program) spec(name string, command []string, args ...string) process.Spec {
	all := append([]string{p.Name}, command...)
	return process.Spec{Name: name, Path: p.Path, Args: append(all, args...), Env: p.Env}
}

// Rig is an origin, a load, and the contestants added to it. It is not safe
// for concurrent use, but for Close.
type Rig struct {
	// Patience is how long a child may take to say that it is ready, and a
	// contestant to let go of connections that have ended. NewRig sets it to
	// 10 s.
	Patience time.Duration

	program Program
	group   *process.Group // owned here
	origin  *process.Child
	load    *process.Child
	address string // of the origin
}

// NewRig starts an origin and a load. Close must be called.
func NewRig(ctx context.Context, program Program) (*Rig, error) {
	r := &Rig{Patience: patience, program: program, group: process.NewGroup()}
	var err error
	r.origin, r.address, err = r.serving(ctx, "the origin", PartOrigin)
	if err == nil {
		r.load, err = r.group.Start(program.spec("the load", program.Part, PartLoad))
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Origin returns the address at which the origin serves.
func (r *Rig) Origin() string { return r.address }

// Close kills all that the rig started and waits until it is gone.
func (r *Rig) Close() { r.group.Close() }

// serving starts a part that serves, and waits until it does.
func (r *Rig) serving(ctx context.Context, name string, part ...string) (*process.Child, string, error) {
	c, err := r.group.Start(r.program.spec(name, r.program.Part, part...))
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	line, err := c.Stdout(ctx)
	if err != nil {
		return nil, "", r.notStarted(c, err)
	}
	var l listening
	if err := json.Unmarshal([]byte(line), &l); err != nil {
		return nil, "", fmt.Errorf("bench: %s said %q: %w", name, line, err)
	}
	return c, l.Address, nil
}

// notStarted says why a child is not ready: preferably in its own words.
func (r *Rig) notStarted(c *process.Child, err error) error {
	var ended *process.EndedError
	switch {
	case errors.As(err, &ended) && complaint(ended.Said) != "":
		return fmt.Errorf("%s did not start: %s", c.Name(), complaint(ended.Said))
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s did not start within %v", c.Name(), r.Patience)
	}
	return err
}

// complaint takes the message out of what a child said last, which may be a
// line of a JSON log. Such a line below a warning is no complaint.
func complaint(line string) string {
	line = strings.TrimPrefix(line, "penstock: ") // the program's name, which is ours too
	var log struct {
		Level slog.Level
		Msg   string
	}
	switch err := json.Unmarshal([]byte(line), &log); {
	case err != nil:
		return line
	case log.Level < slog.LevelWarn:
		return ""
	}
	return log.Msg
}
