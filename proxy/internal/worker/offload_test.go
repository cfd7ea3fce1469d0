package worker_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// A hand takes clients over, and joins them to an echo by a session on goroutines.
type hand struct {
	relay  *relay.Relay
	to     string
	limits *relay.Limits
	refuse error
	wait   bool // for being cut, before anything is joined
	taken  atomic.Int64
	lost   atomic.Int64 // clients that do not know their addresses any more
}

func newHand(t *testing.T, b *tie) *hand {
	t.Helper()
	rel, err := relay.New(&relay.Config{Engine: relay.EngineCopy})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rel.Close() })
	return &hand{relay: rel, to: echo(t), limits: &relay.Limits{Of: b}}
}

func (x *hand) director() *director {
	return &director{next: func(*worker.Client, int) worker.Step {
		return worker.Step{Action: worker.Handover, To: x.take}
	}}
}

func (x *hand) take(h *worker.Offloaded) {
	x.taken.Add(1)
	client, err := h.Conn()
	if err != nil {
		h.End(relay.Result{}, err)
		return
	}
	if c := h.Client; client.RemoteAddr() != nil && (c.Source().String() != client.RemoteAddr().String() || c.Destination().String() != client.LocalAddr().String()) {
		x.lost.Add(1)
	}
	err = x.refuse
	if x.wait {
		<-h.Context().Done()
		err = context.Cause(h.Context())
	}
	if err != nil {
		client.Close()
		h.End(relay.Result{}, err)
		return
	}
	endpoint, err := net.Dial("tcp", x.to)
	if err != nil {
		client.Close()
		h.End(relay.Result{}, err)
		return
	}
	s := x.relay.NewSession(client, endpoint)
	h.Join(s, x.limits, x.to)
	if err := s.Start(h.End); err != nil {
		h.End(relay.Result{}, err)
	}
}

// A client that is handed over is served, counted, listed, and has its place until its end.
// Its binding is notified of the end.
func TestHandover(t *testing.T) {
	t.Parallel()

	b, a := &tie{upstream: "u", endpoint: "e"}, new(counted)
	a.source = func(c *worker.Client) error { c.AdmissionToken = tokenOf(c.Source()); return nil }
	x := newHand(t, b)
	d := x.director()
	r := directed(t, d, func(c *worker.Config, s *worker.Service) {
		c.MaxConnections, s.Admitter, s.Preread = 2, a, worker.Preread{Hello: true}
	})
	r.serve(t)
	hello := helloOf(t, "terminated.example")
	first, second := r.dial(t), r.dial(t)
	for _, c := range []net.Conn{first, second} {
		mustWrite(t, c, hello) // which has not been consumed
		mustRead(t, c, hello)
	}
	third := r.dial(t) // only now: of three at once any two may have the places
	mustWrite(t, third, hello)
	if n := x.taken.Load(); n != 2 || r.Active() != 2 {
		t.Errorf("%d were taken over, %d are active, under a limit of 2", n, r.Active())
	}
	var names []string
	for s := range r.Sessions(context.Background(), new(worker.Query)) {
		if s.State != worker.Joined || s.Upstream != "u" || s.EndpointName != "e" || s.Endpoint != x.to || s.Listener != "first" {
			t.Errorf("listed is %+v", s)
		}
		names = append(names, s.Client)
	}
	if len(names) != 2 || names[0] != first.LocalAddr().String() && names[1] != first.LocalAddr().String() {
		t.Errorf("listed are %v", names)
	}
	eventually(t, func() bool { // the reader of the bytes may be faster than their counter
		sum := r.Summary()
		return sum.Active == 2 && sum.Totals.ClientToEndpoint.Copied == 2*int64(len(hello))
	})
	first.Close()
	mustRead(t, third, hello)
	second.Close()
	third.Close()
	eventually(t, func() bool { return r.Active() == 0 && a.left.Load() == 3 })
	if sum := r.Summary(); sum.Accepted != 3 || sum.Active != 0 || sum.Refused != 0 || b.ended() != 3 {
		t.Errorf("the summary is %+v, %d have ended", sum, b.ended())
	}
	if n := x.lost.Load(); n > 0 {
		t.Errorf("%d of them did not know their addresses when they were connections of package net", n)
	}
	for _, admissionToken := range a.tickets {
		if admissionToken == 0 {
			t.Error("a ticket is lost")
		}
	}
}

// A client that is refused after that is counted, and reported.
func TestHandoverRefused(t *testing.T) {
	t.Parallel()

	x := newHand(t, new(tie))
	x.refuse = errNotAdmitted
	r := directed(t, x.director(), nil)
	r.serve(t)
	c := r.dial(t)
	_, _ = c.Read(make([]byte, 1))
	eventually(t, func() bool { return r.Active() == 0 && len(r.causes()) == 1 })
	if sum := r.Summary(); sum.Refused != 1 || sum.Refusals[worker.RefusedOffLoop] != 1 || r.causes()[0] != errNotAdmitted {
		t.Errorf("the summary is %+v, for %v", sum, r.causes())
	}
}

// They are cut with the others: those that are joined, and those that are not yet.
func TestHandoverIsCut(t *testing.T) {
	t.Parallel()

	for name, wait := range map[string]bool{"joined": false, "before": true} {
		t.Run(name, func(t *testing.T) {
			b := new(tie)
			x := newHand(t, b)
			x.wait = wait
			r := directed(t, x.director(), nil)
			served := make(chan error, 1)
			go func() { served <- r.Serve() }()
			c, other := r.dial(t), r.dial(t)
			eventually(t, func() bool { return x.taken.Load() == 2 })
			if !wait {
				talk(t, c)
				talk(t, other)
				n := r.CutMatching(func(_ *worker.Listening, binding worker.Binding) bool { return binding == b }, errors.New("gone"))
				if n != 2 {
					t.Errorf("%d were cut", n)
				}
				eventually(t, func() bool { return r.Active() == 0 })
				again := r.dial(t)
				talk(t, again)
			}
			r.Cut(errors.New("the end"))
			if err := <-served; err != nil {
				t.Error(err)
			}
			sum := r.Summary()
			if want := int64(2); !wait {
				if sum.Canceled != want+1 || b.ended() != 3 {
					t.Errorf("the summary is %+v, %d have ended", sum, b.ended())
				}
			} else if sum.Canceled != want || sum.Refused != 0 {
				t.Errorf("the summary is %+v", sum)
			}
		})
	}
}

// Clients that are handed over in a storm all end, whichever side ends first.
func TestHandoverStorm(t *testing.T) {
	t.Parallel()

	b := new(tie)
	x := newHand(t, b)
	r := directed(t, x.director(), func(c *worker.Config, _ *worker.Service) { c.MaxConnections = 8 })
	r.serve(t)
	comeAndReset(t, r)
}

// comeAndReset has clients come from eight sides, every fourth of which resets its connection, and waits until all have ended.
func comeAndReset(t *testing.T, r *rig) {
	t.Helper()
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			for n := range 20 {
				if (n+i)%4 != 0 {
					if err := r.hello(); err != nil {
						t.Error(err)
					}
					continue
				}
				if c, err := net.Dial("tcp", r.addr.String()); err == nil {
					reset(c)
				}
			}
		})
	}
	work.Wait()
	eventually(t, func() bool { return r.Active() == 0 })
	if sum := r.Summary(); sum.Active != 0 {
		t.Errorf("the summary is %+v", sum)
	}
}
