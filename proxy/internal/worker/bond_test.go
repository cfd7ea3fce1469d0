package worker_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// A tie is a binding that keeps the notified ends.
type tie struct {
	upstream, endpoint string
	mu                 sync.Mutex
	results            []relay.Result
	errs               []error
}

func (b *tie) Ended(r relay.Result, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.results, b.errs = append(b.results, r), append(b.errs, err)
}

func (b *tie) Names() (upstream, endpoint string) { return b.upstream, b.endpoint }

func (b *tie) ended() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.results)
}

func (b *tie) all() []relay.Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.results
}

// bound has a director's sessions bound to b.
func (d *director) bound(b *tie) *director {
	limits := &relay.Limits{Of: b}
	d.reached = func() (*relay.Limits, error) { return limits, nil }
	return d
}

// A binding is notified of the end of each of its sessions, once, with its result.
func TestBondIsToldOfTheEnd(t *testing.T) {
	t.Parallel()

	b := new(tie)
	r := directed(t, straight(echo(t)).bound(b), nil)
	r.serve(t)
	first, second := r.dial(t), r.dial(t)
	talk(t, first)
	talk(t, second)
	if b.ended() != 0 {
		t.Fatal("it is notified of an end before there is one")
	}
	first.Close()
	eventually(t, func() bool { return b.ended() == 1 })
	reset(second)
	eventually(t, func() bool { return b.ended() == 2 })
	if got := b.results[0]; got.Reason != relay.ReasonEOF || got.AToB.Bytes() != 5 || got.BToA.Bytes() != 5 || b.errs[0] != nil {
		t.Errorf("the first ended with %+v, %v", got, b.errs[0])
	}
	if got := b.results[1]; got.Reason == relay.ReasonEOF || b.errs[1] == nil {
		t.Errorf("the second ended with %+v, %v", got, b.errs[1])
	}
}

// The service's limits are those of sessions that have no others.
func TestLimitsOfTheService(t *testing.T) {
	t.Parallel()

	own, service := new(tie), new(tie)
	d := straight(echo(t))
	var turn atomic.Int64
	d.reached = func() (*relay.Limits, error) {
		if turn.Add(1) == 1 {
			return nil, nil
		}
		return &relay.Limits{Of: own}, nil
	}
	var clock atomic.Int64
	clock.Store(1)
	r := directed(t, d, func(c *worker.Config, s *worker.Service) {
		s.Limits, c.Now = &relay.Limits{IdleTimeout: time.Second, Of: service}, clock.Load
	})
	r.serve(t)
	idle, stays := r.dial(t), net.Conn(nil)
	talk(t, idle)
	stays = r.dial(t)
	talk(t, stays)
	clock.Add(int64(2 * time.Second))
	r.Wake()
	eventually(t, func() bool { return service.ended() == 1 })
	if got := service.results[0].Reason; got != relay.ReasonIdle {
		t.Errorf("it has ended by %v", got)
	}
	talk(t, stays)
}

// An endpoint that is not wanted any more when it is reached is left at once, and the
// search continues.
func TestReachedAndNotWanted(t *testing.T) {
	t.Parallel()

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	wanted := echo(t)
	d := &director{next: func(_ *worker.Client, n int) worker.Step {
		if n == 1 {
			return connectTo(ln.Addr().String())
		}
		return connectTo(wanted)
	}}
	var turn atomic.Int64
	d.reached = func() (*relay.Limits, error) {
		if turn.Add(1) == 1 {
			return nil, errors.New("not wanted")
		}
		return nil, nil
	}
	r := directed(t, d, nil)
	r.serve(t)
	talk(t, r.dial(t))
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the endpoint that is not wanted gets %v", err)
	}
}

// Sessions that match are cut, and no other session is affected.
func TestCutMatching(t *testing.T) {
	t.Parallel()

	b := [2]*tie{{upstream: "u", endpoint: "a"}, {upstream: "u", endpoint: "b"}}
	limits := [2]*relay.Limits{{Of: b[0]}, {Of: b[1]}}
	d := straight(echo(t))
	var turn atomic.Int64
	d.reached = func() (*relay.Limits, error) { return limits[turn.Add(1)%2], nil }
	r := directed(t, d, func(c *worker.Config, _ *worker.Service) { c.MaxConnections = 1000 })
	r.serve(t)
	var conns []net.Conn
	const clients = 300
	for range clients {
		conns = append(conns, r.dial(t))
		talk(t, conns[len(conns)-1])
	}
	listed := map[string]int{}
	for s := range r.Sessions(context.Background(), new(worker.Query)) {
		listed[s.Listener+" "+s.Upstream+" "+s.EndpointName]++
	}
	if listed["first u a"] != clients/2 || listed["first u b"] != clients/2 {
		t.Errorf("listed are %v", listed)
	}
	cause := errors.New("it went away")
	n := r.CutMatching(func(l *worker.Listening, binding worker.Binding) bool { return binding == b[0] && l.Name == "first" }, cause)
	if n != clients/2 || b[0].ended() != clients/2 || b[1].ended() != 0 {
		t.Errorf("%d were cut, %d and %d have ended", n, b[0].ended(), b[1].ended())
	}
	if b[0].errs[0] != cause || b[0].results[0].Reason != relay.ReasonCanceled {
		t.Errorf("cut by %v, %v", b[0].errs[0], b[0].results[0].Reason)
	}
	alive := 0
	for _, c := range conns {
		_, _ = c.Write([]byte("x"))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			alive++
		}
	}
	if alive != clients/2 {
		t.Errorf("%d live on", alive)
	}
}

// Cutting continues while clients come and go, several at a time, and each ends.
func TestCutMatchingUnderLoad(t *testing.T) {
	t.Parallel()

	b := new(tie)
	r := directed(t, straight(echo(t)).bound(b), nil)
	r.serve(t)
	var over atomic.Bool
	var work, cutting sync.WaitGroup
	for range 3 {
		cutting.Go(func() {
			for !over.Load() {
				r.CutMatching(func(*worker.Listening, worker.Binding) bool { return true }, errors.New("cut"))
				time.Sleep(100 * time.Microsecond)
			}
		})
	}
	for range 6 {
		work.Go(func() {
			for range 100 {
				_ = r.hello() // some are cut
			}
		})
	}
	work.Wait()
	over.Store(true)
	cutting.Wait()
	eventually(t, func() bool { return r.Active() == 0 })
	if got := int64(b.ended()); got != r.Summary().Accepted || got != 600 {
		t.Errorf("notified of %d ends, %+v", got, r.Summary())
	}
}
