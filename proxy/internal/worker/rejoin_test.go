package worker_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// A returning takes clients over, and has them go back to their loops, with an echo as their endpoint.
type returning struct {
	t      *testing.T
	to     string
	limits *relay.Limits
	refuse error                         // of Reached
	hold   atomic.Pointer[chan struct{}] // nil: they go back at once
	taken  atomic.Int64
	ended  atomic.Int64
	failed atomic.Int64
}

func newReturning(t *testing.T, b *tie) *returning {
	return &returning{t: t, to: echo(t), limits: &relay.Limits{Of: b}}
}

func (x *returning) director() *director {
	return &director{next: func(*worker.Client, int) worker.Step {
		return worker.Step{Action: worker.Handover, To: x.take}
	}}
}

func (x *returning) take(h *worker.Offloaded) {
	x.taken.Add(1)
	client, err := h.Conn()
	if err != nil {
		h.End(relay.Result{}, err)
		return
	}
	endpoint, err := net.Dial("tcp", x.to)
	if err != nil {
		client.Close()
		h.End(relay.Result{}, err)
		return
	}
	if hold := x.hold.Load(); hold != nil {
		<-*hold
	}
	r := worker.TakeSockets(client, endpoint)
	if r == nil {
		x.t.Error("the sockets cannot be taken")
		h.End(relay.Result{}, errors.New("not taken"))
		return
	}
	r.Reached = func(int64) (*relay.Limits, error) { return x.limits, x.refuse }
	r.Ended = func() { x.ended.Add(1) }
	if err := h.Rejoin(r); err != nil {
		x.failed.Add(1)
		h.End(relay.Result{}, err)
	}
}

// TestRejoin: a client that has gone back is served, counted and listed with the others of a loop, has its place
// until its end, and is reported then.
func TestRejoin(t *testing.T) {
	t.Parallel()

	b, a := &tie{upstream: "u", endpoint: "e"}, new(counted)
	a.source = func(c *worker.Client) error { c.AdmissionToken = tokenOf(c.Source()); return nil }
	x := newReturning(t, b)
	r := directed(t, x.director(), func(c *worker.Config, s *worker.Service) {
		c.MaxConnections, s.Admitter, s.Preread = 2, a, worker.Preread{Hello: true}
	})
	r.serve(t)
	hello := helloOf(t, "terminated.example")
	first, second := r.dial(t), r.dial(t)
	for _, c := range []net.Conn{first, second} {
		mustWrite(t, c, hello)
		mustRead(t, c, hello)
	}
	third := r.dial(t)
	mustWrite(t, third, hello)
	if n := x.taken.Load(); n != 2 || r.Active() != 2 {
		t.Errorf("%d were taken over, %d are active, under a limit of 2", n, r.Active())
	}
	var names []string
	for s := range r.Sessions(context.Background(), new(worker.Query)) {
		if s.State != worker.Joined || s.Loop < 0 || s.Upstream != "u" || s.EndpointName != "e" || s.Endpoint != x.to || s.Listener != "first" {
			t.Errorf("listed is %+v", s)
		}
		names = append(names, s.Client)
	}
	if len(names) != 2 || names[0] != first.LocalAddr().String() && names[1] != first.LocalAddr().String() {
		t.Errorf("listed are %v", names)
	}
	if sum := r.Summary(); sum.Active != 2 || sum.Accepted != 2 {
		t.Errorf("the summary is %+v", sum)
	}
	first.Close()
	mustRead(t, third, hello)
	second.Close()
	third.Close()
	eventually(t, func() bool { return r.Active() == 0 && a.left.Load() == 3 })
	sum := r.Summary()
	if sum.Accepted != 3 || sum.Active != 0 || sum.Refused != 0 || b.ended() != 3 || x.ended.Load() != 3 {
		t.Errorf("the summary is %+v, %d and %d have ended", sum, b.ended(), x.ended.Load())
	}
	flow := sum.Totals.ClientToEndpoint
	if flow.Spliced+flow.Copied != 3*int64(len(hello)) {
		t.Errorf("the summary is %+v", sum)
	}
	for _, token := range a.tickets {
		if token == 0 {
			t.Error("a token is lost")
		}
	}
}

// TestRejoinRefused: one that may not go on is refused, and both sides are reset.
func TestRejoinRefused(t *testing.T) {
	t.Parallel()

	b := new(tie)
	x := newReturning(t, b)
	x.refuse = errNotAdmitted
	r := directed(t, x.director(), nil)
	r.serve(t)
	c, err := net.Dial(r.addr.Network(), r.addr.String())
	switch {
	case err == nil:
		defer c.Close()
		_, _ = c.Read(make([]byte, 1))
	case !errors.Is(err, syscall.ECONNRESET): // the reset may come before connect(2) has reported the connection
		t.Fatal(err)
	}
	eventually(t, func() bool { return r.Active() == 0 && len(r.causes()) == 1 })
	if sum := r.Summary(); sum.Refused != 1 || sum.Refusals[worker.RefusedOffLoop] != 1 || r.causes()[0] != errNotAdmitted || x.ended.Load() != 0 || b.ended() != 0 {
		t.Errorf("the summary is %+v, for %v", sum, r.causes())
	}
}

// TestRejoinIsCut: those that have gone back are cut with the others, by their binding and at the end; one that is
// about to go back at the end is not served.
func TestRejoinIsCut(t *testing.T) {
	t.Parallel()

	b := new(tie)
	x := newReturning(t, b)
	r := directed(t, x.director(), nil)
	served := make(chan error, 1)
	go func() { served <- r.Serve() }()
	c, other := r.dial(t), r.dial(t)
	talk(t, c)
	talk(t, other)
	if n := r.CutMatching(func(_ *worker.Listening, binding worker.Binding) bool { return binding == b }, errors.New("gone")); n != 2 {
		t.Errorf("%d were cut", n)
	}
	eventually(t, func() bool { return r.Active() == 0 })
	again := r.dial(t)
	talk(t, again)
	hold := make(chan struct{})
	x.hold.Store(&hold)
	r.dial(t)
	eventually(t, func() bool { return x.taken.Load() == 4 })
	r.Cut(errors.New("the end"))
	close(hold)
	if err := <-served; err != nil {
		t.Error(err)
	}
	if sum := r.Summary(); sum.Canceled != 4 || sum.Refused != 0 || sum.Active != 0 || b.ended() != 3 || x.ended.Load() != 3 || x.failed.Load() != 1 {
		t.Errorf("the summary is %+v, %d, %d and %d have ended", sum, b.ended(), x.ended.Load(), x.failed.Load())
	}
}

// TestRejoinStorm: clients that go back in a storm all end, whichever side ends first.
func TestRejoinStorm(t *testing.T) {
	t.Parallel()

	x := newReturning(t, new(tie))
	r := directed(t, x.director(), func(c *worker.Config, _ *worker.Service) { c.MaxConnections = 8 })
	r.serve(t)
	comeAndReset(t, r)
}
