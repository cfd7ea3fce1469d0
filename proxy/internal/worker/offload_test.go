package worker_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
	"github.com/penstock/penstock/relay"
)

// A hand takes clients over, and joins them to an echo on their loops, to which they go back.
type hand struct {
	t                    *testing.T
	to                   string
	limits               *relay.Limits
	refuse               error
	early                bool        // they are refused before they would go back
	hold                 atomic.Bool // they go back when they are cut
	taken, ended, failed atomic.Int64
	lost                 atomic.Int64 // clients that do not know their addresses any more
}

func newHand(t *testing.T, b worker.Binding) *hand {
	t.Helper()
	return &hand{t: t, to: echo(t), limits: &relay.Limits{Of: b}}
}

func (x *hand) director() *director {
	return &director{next: func(*worker.Client, int) worker.Step {
		return worker.Step{Action: worker.Handover, To: x.take}
	}}
}

func (x *hand) take(h *worker.Offloaded) {
	x.taken.Add(1)
	if err := x.join(h); err != nil {
		h.End(err)
	}
}

func (x *hand) join(h *worker.Offloaded) error {
	client, err := h.Conn()
	if err != nil {
		return err
	}
	if c := h.Client; client.RemoteAddr() != nil && (c.Source().String() != client.RemoteAddr().String() || c.Destination().String() != client.LocalAddr().String()) {
		x.lost.Add(1)
	}
	if x.early {
		client.Close()
		return x.refuse
	}
	endpoint, err := net.Dial("tcp", x.to)
	if err != nil {
		client.Close()
		return err
	}
	if x.hold.Load() {
		<-h.Context().Done()
	}
	r, err := worker.TakeSockets(h.Context(), client, endpoint)
	if err != nil {
		client.Close()
		endpoint.Close()
		return err
	}
	r.Search = &actor{director: &director{reached: func() (*relay.Limits, error) { return x.limits, x.refuse }}}
	r.Ended = func() { x.ended.Add(1) }
	if err := h.Rejoin(r); err != nil {
		x.failed.Add(1)
		return err
	}
	return nil
}

// A client that is handed over is served, counted, listed, and has its place until its end.
// Its binding is notified of the end, and of its bytes.
func TestHandover(t *testing.T) {
	t.Parallel()
	b := &gauge{tie: tie{upstream: "u", endpoint: "e"}}
	x := newHand(t, b)
	a := new(counted)
	a.source = func(c *worker.Client) error { c.AdmissionToken = tokenOf(c.Source()); return nil }
	r := directed(t, x.director(), func(c *setup, s *worker.Service) {
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
		if s.State != worker.Joined || s.Loop < 0 || s.Upstream != "u" || s.EndpointName != "e" || s.Endpoint != x.to || s.Listener != "first" {
			t.Errorf("listed is %+v", s)
		}
		names = append(names, s.Client)
	}
	if len(names) != 2 || names[0] != first.LocalAddr().String() && names[1] != first.LocalAddr().String() {
		t.Errorf("listed are %v", names)
	}
	moved := func() int64 { // the reader of the bytes may be faster than their counter
		flow := r.Summary().Totals.ClientToEndpoint
		return flow.Spliced + flow.Copied
	}
	eventually(t, func() bool { return r.Summary().Active == 2 && moved() == 2*int64(len(hello)) })
	if got, _ := metered(r.Group, b); total(got[0]) != 4*int64(len(hello)) || total(b.all()) != 0 {
		t.Errorf("while they run: %+v, the meter was given %+v", got[0], b.all())
	}
	first.Close()
	mustRead(t, third, hello)
	second.Close()
	third.Close()
	eventually(t, func() bool { return r.Active() == 0 && a.left.Load() == 3 })
	if sum := r.Summary(); sum.Accepted != 3 || sum.Active != 0 || sum.Refused != 0 || b.ended() != 3 || x.ended.Load() != 3 || moved() != 3*int64(len(hello)) {
		t.Errorf("the summary is %+v, %d and %d have ended", sum, b.ended(), x.ended.Load())
	}
	if got, _ := metered(r.Group, b); total(got[0]) != 6*int64(len(hello)) || total(b.all()) != 6*int64(len(hello)) {
		t.Errorf("when they have ended: %+v, the meter was given %+v", got[0], b.all())
	}
	if n := x.lost.Load(); n > 0 {
		t.Errorf("%d of them did not know their addresses when they were connections of package net", n)
	}
	if slices.Contains(a.tickets, 0) {
		t.Error("a ticket is lost")
	}
}

// A client that is refused after that is reset, counted, and reported.
func TestHandoverRefused(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"before": true, "on its loop": false} {
		t.Run(name, func(t *testing.T) {
			b := new(tie)
			x := newHand(t, b)
			x.early = early
			x.refuse = errNotAdmitted
			r := directed(t, x.director(), nil)
			r.serve(t)
			if c, err := net.Dial(r.addr.Network(), r.addr.String()); err == nil { // otherwise the reset has come before
				defer c.Close()
				_, _ = c.Read(make([]byte, 1))
			}
			eventually(t, func() bool { return r.Active() == 0 && len(r.causes()) == 1 })
			if sum := r.Summary(); sum.Refused != 1 || r.causes()[0] != errNotAdmitted || x.ended.Load() != 0 || b.ended() != 0 {
				t.Errorf("the summary is %+v, for %v", sum, r.causes())
			}
		})
	}
}

// TestHandoverMeetsCut: a client that is about to leave its loop when all are cut is cut too.
func TestHandoverMeetsCut(t *testing.T) {
	t.Parallel()

	asked, cut := make(chan struct{}), make(chan struct{})
	r := directed(t, &director{next: func(*worker.Client, int) worker.Step {
		close(asked)
		<-cut
		return worker.Step{Action: worker.Handover, To: func(h *worker.Offloaded) {
			<-h.Context().Done()
			h.Close()
			h.End(context.Cause(h.Context()))
		}}
	}}, nil)
	r.begin()
	r.dial(t)
	<-asked
	r.Cut(errNotAdmitted)
	close(cut)
	err := condition.Receive(t, "all clients are cut", r.served)
	if sum := r.Summary(); err != nil || sum.Canceled != 1 || sum.Refused != 0 {
		t.Errorf("%v, the summary is %+v", err, sum)
	}
}

// TestHandoverResponded: a client that got its response off its loop is neither refused nor gone.
func TestHandoverResponded(t *testing.T) {
	t.Parallel()

	r := directed(t, &director{next: func(*worker.Client, int) worker.Step {
		return worker.Step{Action: worker.Handover, To: func(h *worker.Offloaded) {
			c, err := h.Conn()
			if err == nil {
				_, err = c.Write([]byte("sorry"))
				c.Close()
			}
			h.End(err)
		}}
	}}, nil)
	r.serve(t)
	sockets.ExpectAll(t, r.dial(t), "sorry")
	eventually(t, func() bool { return r.Active() == 0 })
	if sum := r.Summary(); sum.Accepted != 1 || sum.Refused+sum.Left+sum.Canceled != 0 {
		t.Errorf("the summary is %+v", sum)
	}
}

// They are cut with the others, by their binding and at the end; one that is about to go back at the end is not served.
func TestHandoverIsCut(t *testing.T) {
	t.Parallel()
	b := &tie{upstream: "u", endpoint: "e"}
	x := newHand(t, b)
	r := directed(t, x.director(), nil)
	r.begin()
	c, other := r.dial(t), r.dial(t)
	talk(t, c)
	talk(t, other)
	if n := r.CutMatching(func(_ *worker.Listening, binding worker.Binding) bool { return binding == b }, errors.New("gone")); n != 2 {
		t.Errorf("%d were cut", n)
	}
	eventually(t, func() bool { return r.Active() == 0 })
	talk(t, r.dial(t))
	x.hold.Store(true)
	r.dial(t)
	eventually(t, func() bool { return x.taken.Load() == 4 })
	r.Cut(record.ErrEnds)
	if err := <-r.served; err != nil {
		t.Error(err)
	}
	if sum := r.Summary(); sum.Canceled != 2 || sum.Refused != 0 || sum.Active != 0 || b.ended() != 3 || x.ended.Load() != 3 || x.failed.Load() != 1 {
		t.Errorf("the summary is %+v, %d, %d and %d have ended", sum, b.ended(), x.ended.Load(), x.failed.Load())
	}
}

// TestTakenWhenThereIsADescriptor: a client goes back to its loop once there is a descriptor, unless it is cut or has gone before.
func TestTakenWhenThereIsADescriptor(t *testing.T) {
	t.Parallel()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, want := range map[string]error{"short": nil, "cut": errNotAdmitted, "gone": sockopt.ErrGone} {
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		asked := 0
		fd, err := worker.Duplicate(ctx, c.(*net.TCPConn), c.(*net.TCPConn), func(int) (int, error) {
			asked++
			switch {
			case asked < 3 || name == "gone":
				if asked == 2 && name == "gone" {
					reset(client)
				}
				return -1, syscall.EMFILE
			case name == "cut":
				cancel(want)
				return -1, syscall.ENFILE
			}
			return 7, nil
		})
		if cancel(nil); err != want || want == nil && fd != 7 {
			t.Errorf("%s: %d, %v after %d attempts", name, fd, err, asked)
		}
		client.Close()
		c.Close()
	}
}

// A storm is a rig of which everything changes all the time.
type storm struct {
	*rig
	target  string
	hand    *hand
	binding *tie
	hello   []byte

	admitter *counted
	wakers   sync.Map
	over     atomic.Bool
	served   atomic.Int64
}

// director does with each client something else, and connects most of them in the end.
func (s *storm) director() *director {
	limits := &relay.Limits{Of: s.binding, IdleTimeout: time.Minute}
	var failures atomic.Int64
	d := &director{header: []byte("preface"), next: func(c *worker.Client, n int) worker.Step {
		s.wakers.Store(c.Waker(), true)
		switch k := rand.IntN(12); {
		case n > 4 || k < 4:
			step := connectTo(s.target)
			step.ProxyHeader = k == 0
			return step
		case k < 6:
			return worker.Step{Action: worker.Park, Timeout: time.Millisecond}
		case k < 8:
			return worker.Step{Action: worker.Pause, Timeout: time.Millisecond}
		case k == 8:
			return worker.Step{Action: worker.Respond, Bytes: []byte("later"), Timeout: time.Second}
		case k == 9:
			return worker.Step{Action: worker.Handover, To: s.hand.take}
		case k == 10:
			return connectTo("127.0.0.1:1") // where no process listens
		default:
			return worker.Step{Action: worker.GiveUp}
		}
	}}
	d.reached = func() (*relay.Limits, error) {
		if failures.Add(1)%7 == 0 {
			return nil, errors.New("not now")
		}
		return limits, nil
	}
	return d
}

// service returns one of those that there may be.
func (s *storm) service(t *testing.T) *worker.Service {
	service := serviceOf(t, s.director())
	service.Admitter, service.Preread.Timeout = s.admitter, 20*time.Millisecond
	switch rand.IntN(4) {
	case 0:
		service.Preread.Header = &proxyproto.Policy{Timeout: 20 * time.Millisecond}
	case 1:
		service.Preread.Hello = true
	case 2:
		service.Preread.Data = true
	}
	return service
}

// client is a client with a random behaviour, which ignores the result.
func (s *storm) client(addr string) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(condition.Patience))
	first := [][]byte{[]byte("PROXY UNKNOWN\r\nx"), s.hello, []byte("x")}[rand.IntN(3)]
	if rand.IntN(4) == 0 {
		first = first[:rand.IntN(len(first))]
	}
	if _, err := c.Write(first); err != nil {
		return
	}
	switch rand.IntN(4) {
	case 0:
		reset(c)
		return
	case 1:
		_ = c.(*net.TCPConn).CloseWrite()
	case 2:
		return
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err == nil {
		s.served.Add(1)
	}
}

// again does something again and again until the storm is over.
func (s *storm) again(work *sync.WaitGroup, f func()) {
	work.Go(func() {
		for !s.over.Load() {
			f()
			time.Sleep(200 * time.Microsecond)
		}
	})
}

// Whatever happens at the same time, the books are right in the end.
func TestStorm(t *testing.T) {
	t.Parallel()

	s := &storm{target: echo(t), binding: new(tie), admitter: new(counted), hello: helloOf(t, "storm.example")}
	s.hand = newHand(t, s.binding)
	var turns atomic.Int64
	s.admitter.room = func() error {
		if turns.Add(1)%20 == 0 {
			return errNotAdmitted
		}
		return nil
	}
	s.admitter.source = func(c *worker.Client) error {
		if c.AdmissionToken = tokenOf(c.Source()); rand.IntN(10) == 0 {
			return errNotAdmitted
		}
		return nil
	}
	s.rig = newRig(t, func(c *setup) {
		c.MaxConnections, c.first.Service = 12, s.service(t)
	})
	s.begin()
	first := s.First()
	var work, clients sync.WaitGroup
	s.again(&work, func() { first.Replace(s.service(t)) })
	s.again(&work, func() {
		s.wakers.Range(func(w, _ any) bool {
			w.(worker.Waker).Wake()
			return true
		})
		s.wakers.Clear()
	})
	s.again(&work, func() {
		s.CutMatching(func(*worker.Listening, worker.Binding) bool { return rand.IntN(3) == 0 }, errNotAdmitted)
	})
	s.again(&work, func() {
		for range s.Sessions(context.Background(), new(worker.Query)) {
		}
		_ = s.Summary()
	})
	s.again(&work, func() {
		p := s.listen(t, s.service(t))
		s.client(p.addr)
		p.Close()
		<-p.left
	})
	for range 8 {
		clients.Go(func() {
			for range 60 {
				s.client(s.addr.String())
			}
		})
	}
	clients.Wait()
	s.over.Store(true)
	work.Wait()
	s.Cut(errors.New("the storm is over"))
	if err := <-s.rig.served; err != nil {
		t.Error(err)
	}
	sum := s.Summary()
	if sum.Active != 0 || s.admitter.in.Load() != s.admitter.left.Load() || sum.Accepted != s.admitter.asked.Load() {
		t.Errorf("of %d %d were admitted and %d have left, %+v", s.admitter.asked.Load(), s.admitter.in.Load(), s.admitter.left.Load(), sum)
	}
	if s.served.Load() == 0 || s.binding.ended() == 0 || sum.Refused == 0 {
		t.Errorf("it was none: %d were served, %d have ended, %+v", s.served.Load(), s.binding.ended(), sum)
	}
}
