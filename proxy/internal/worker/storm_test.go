package worker_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

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
	_ = c.SetDeadline(time.Now().Add(time.Minute))
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
	s.rig = newRig(t, func(c *worker.Config) {
		c.MaxConnections, c.Listeners[0].Service = 12, s.service(t)
	})
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
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
	if err := <-served; err != nil {
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
