package admin

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/listener"
	"github.com/penstock/penstock/proxy/socket"
)

// A process that drains may go on for long, and is asked meanwhile how far it is. So it
// keeps its address until a successor wants it: who finds an address in use asks the process
// there what it does, and if it drains, to leave.

// ErrServing is wrapped by the error of a server that is asked to leave its address though
// its process does not drain.
var ErrServing = errors.New("the process does not drain")

// handoverTime is how long a process has to answer to its successor.
const handoverTime = 2 * time.Second

// leave answers a successor.
func (s *Server) leave(context.Context, *arguments) (any, error) {
	if s.cfg.Balancer.Status().State != Draining {
		return nil, fmt.Errorf("%w: only then it leaves its address to another", ErrServing)
	}
	s.log.Info("admin socket left to a successor")
	s.Leave()
	return done{}, nil
}

// listen gets hold of an address, also from a process that drains.
func (s *Server) listen(ctx context.Context, addr socket.Address) (*listener.Listener, error) {
	cfg := &listener.Config{Limit: s.limit}
	l, err := listener.Listen(ctx, addr, cfg)
	if !errors.Is(err, syscall.EADDRINUSE) || askToLeave(ctx, addr) != nil {
		return l, err
	}
	return listener.Listen(ctx, addr, cfg)
}

// askToLeave has the process leave that is at an address, if it is one of this program's
// and drains.
func askToLeave(ctx context.Context, addr socket.Address) error {
	ctx, cancel := context.WithTimeout(ctx, handoverTime)
	defer cancel()
	c, err := NewClient(addr.String())
	if err != nil {
		return err
	}
	switch st, err := c.Status(ctx); {
	case err != nil:
		return err
	case st.State != Draining:
		return ErrServing
	}
	return c.do(ctx, "POST", "/leave", nil, nil)
}
