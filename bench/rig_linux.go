package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/process"
)

// startTimeout bounds how long a part may take to say that it is ready.
const startTimeout = 10 * time.Second

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
	program Program
	group   *process.Group // owned here
	origin  *process.Child
	load    *process.Child
	address string // of the origin
}

// NewRig starts an origin and a load. Close must be called.
func NewRig(ctx context.Context, program Program) (*Rig, error) {
	r := &Rig{program: program, group: process.NewGroup()}
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
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	line, err := c.Stdout(ctx)
	if err != nil {
		return nil, "", notStarted(c, err)
	}
	var l listening
	if err := json.Unmarshal([]byte(line), &l); err != nil {
		return nil, "", fmt.Errorf("bench: %s said %q: %w", name, line, err)
	}
	return c, l.Address, nil
}

// notStarted says why a child is not ready: preferably in its own words.
func notStarted(c *process.Child, err error) error {
	var ended *process.EndedError
	switch {
	case errors.As(err, &ended) && ended.Said != "":
		return fmt.Errorf("%s did not start: %s", c.Name(), said(ended.Said))
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s did not start within %v", c.Name(), startTimeout)
	}
	return err
}

// said takes the message out of a line that may be a JSON log.
func said(line string) string {
	var log struct{ Msg, Error string }
	if json.Unmarshal([]byte(line), &log) != nil || log.Msg == "" {
		return line
	}
	if log.Error != "" {
		return log.Msg + ": " + log.Error
	}
	return log.Msg
}
