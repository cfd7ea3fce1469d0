package admin

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/internal/listener"
	"github.com/penstock/penstock/proxy/sockopt"
)

// A drain may take long, and the status of a draining process is still needed. So the process
// keeps its address until a successor needs it. If the address is in use, the successor asks
// for the status of the process there. If that drains, the successor asks it to leave.

// ErrServing is wrapped by the error of a server that is asked to leave its address but does
// not drain.
var ErrServing = errors.New("the process does not drain")

// handoverTime is the limit of the response to a successor.
const handoverTime = 2 * time.Second

// leave handles the request of a successor.
func (s *Server) leave(_ context.Context, a *arguments) (any, error) {
	if s.cfg.Balancer.Status().State != Draining {
		return nil, fmt.Errorf("%w: only then it leaves its address to another", ErrServing)
	}
	s.log.Info("admin socket left to a successor", "by", a.by)
	s.Leave()
	return empty{}, nil
}

// listen listens at an address, which it takes over from a draining process if necessary.
func (s *Server) listen(ctx context.Context, addr sockopt.Address, a *Access) (*listener.Listener, error) {
	cfg := &listener.Config{Limit: s.conns.Limit(), Own: true}
	l, err := listener.Listen(ctx, addr, cfg)
	if !errors.Is(err, syscall.EADDRINUSE) || askToLeave(ctx, a) != nil {
		return l, err
	}
	return listener.Listen(ctx, addr, cfg)
}

// askToLeave asks the process at an address to leave, if it is one of this program and drains.
func askToLeave(ctx context.Context, a *Access) error {
	ctx, cancel := context.WithTimeout(ctx, handoverTime)
	defer cancel()
	c, err := NewClientAs(a.Bind, a.credentials())
	if err != nil {
		return err
	}
	switch st, err := c.Status(ctx); {
	case err != nil:
		return err
	case st.State != Draining:
		return ErrServing
	}
	return c.do(ctx, "POST", "/v1/leave", nil, nil)
}
