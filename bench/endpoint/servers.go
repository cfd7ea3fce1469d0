package endpoint

import (
	"context"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/process"
)

// Servers are endpoints in a separate process. Only one goroutine may use them.
type Servers struct {
	Addresses []string // address of each endpoint
	child     *process.Child
	frozen    bool
}

// Start starts a process with endpoints. It ends with the group at the latest. spec says how to start a process
// that calls [RunPart].
func Start(ctx context.Context, g *process.Group, spec process.Spec, p Plan) (*Servers, error) {
	var a addresses
	child, err := start(ctx, g, spec, p, &a)
	if err != nil {
		return nil, err
	}
	return &Servers{Addresses: a.Addresses, child: child}, nil
}

// start starts a process, sends its plan, and reads its first line.
func start(ctx context.Context, g *process.Group, spec process.Spec, plan, first any) (*process.Child, error) {
	child, err := g.Start(spec)
	if err != nil {
		return nil, err
	}
	if err = child.Send(plan); err == nil {
		err = child.Receive(ctx, first)
	}
	if err != nil {
		child.Kill()
	}
	return child, err
}

// Turn changes the state of endpoints at a time, and returns the actual time.
func (s *Servers) Turn(ctx context.Context, at time.Time, what Turn) (time.Time, error) {
	if !pause(ctx, nil, time.Until(at)) {
		return time.Time{}, context.Cause(ctx)
	}
	if err := s.child.Send(what); err != nil {
		return time.Time{}, err
	}
	var done turned
	err := s.child.Receive(ctx, &done)
	return done.At, err
}

// Freeze stops the whole process by SIGSTOP at a time, and returns the actual time. The sockets go on listening,
// and the kernel accepts connections for them.
func (s *Servers) Freeze(ctx context.Context, at time.Time) (time.Time, error) {
	s.frozen = true
	return s.do(ctx, at, func() error { return s.child.Freeze(ctx) })
}

// Thaw continues a frozen process at a time.
func (s *Servers) Thaw(ctx context.Context, at time.Time) (time.Time, error) {
	s.frozen = false
	return s.do(ctx, at, func() error { return s.child.Signal(syscall.SIGCONT) })
}

// Frozen reports whether the process is frozen.
func (s *Servers) Frozen() bool { return s.frozen }

func (s *Servers) do(ctx context.Context, at time.Time, what func() error) (time.Time, error) {
	if !pause(ctx, nil, time.Until(at)) {
		return time.Time{}, context.Cause(ctx)
	}
	err := what()
	return time.Now(), err
}

// Kill ends the process.
func (s *Servers) Kill() { s.child.Kill() }
