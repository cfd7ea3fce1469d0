package worker_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// waitFor waits until the only client that is listed is in a state.
func (r *rig) waitFor(t *testing.T, state worker.State) {
	t.Helper()
	eventually(t, func() bool {
		for s := range r.Sessions(context.Background(), new(worker.Query)) {
			if s.State == state {
				return true
			}
		}
		return false
	})
}

// Wherever a client is waiting when it goes, its place is free at once, and everything that
// was taken for it is given back.
func TestClientLeavesWhileItWaits(t *testing.T) {
	t.Parallel()

	for name, x := range map[string]struct {
		step  worker.Step
		state worker.State
		leave func(net.Conn)
	}{
		"tcp/parked/reset":      {worker.Step{Action: worker.Park}, worker.Waiting, reset},
		"tcp/pausing/reset":     {worker.Step{Action: worker.Pause, Timeout: time.Hour}, worker.Waiting, reset},
		"unix/parked/closed":    {worker.Step{Action: worker.Park, Timeout: time.Hour}, worker.Waiting, func(c net.Conn) { c.Close() }},
		"tcp/responding/reset":  {worker.Step{Action: worker.Respond, Bytes: make([]byte, 64<<20), Timeout: time.Hour}, worker.Responding, reset},
		"tcp/lingering/reset":   {worker.Step{Action: worker.Respond, Timeout: time.Hour}, worker.Responding, reset},
		"tcp/lingering/ended":   {worker.Step{Action: worker.Respond, Timeout: time.Hour}, worker.Responding, func(c net.Conn) { c.(*net.TCPConn).CloseWrite() }},
		"unix/lingering/closed": {worker.Step{Action: worker.Respond, Timeout: time.Hour}, worker.Responding, func(c net.Conn) { c.Close() }},
		"tcp/lingering/sends": {worker.Step{Action: worker.Respond, Timeout: time.Hour}, worker.Responding, func(c net.Conn) {
			_, _ = c.Write(make([]byte, 1<<20))
			c.Close()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			network, _, _ := strings.Cut(name, "/")
			addr := "127.0.0.1:0"
			if network == "unix" {
				addr = sockets.Dir(t) + "/proxy"
			}
			a := new(counted)
			r := newRigAt(t, network, addr, func(c *worker.Config) {
				s := serviceOf(t, &director{next: func(*worker.Client, int) worker.Step { return x.step }})
				s.Admitter, c.Listeners[0].Service, c.MaxConnections = a, s, 1
			})
			r.serve(t)
			const clients = 3
			for range clients {
				c := r.dial(t)
				r.waitFor(t, x.state)
				x.leave(c)
				eventually(t, func() bool { return r.Active() == 0 })
			}
			eventually(t, func() bool { return a.left.Load() == clients })
			if sum := r.Summary(); sum.Accepted != clients || sum.Refused != 0 {
				t.Errorf("the summary is %+v", sum)
			}
		})
	}
}

// Every client that is waiting when all are cut is reset.
func TestCutWhileTheyWait(t *testing.T) {
	t.Parallel()

	for state, x := range map[worker.State]struct {
		preread worker.Preread
		step    worker.Step
	}{
		worker.Prereading: {preread: worker.Preread{Data: true, Timeout: time.Hour}},
		worker.Waiting:    {step: worker.Step{Action: worker.Park}},
		worker.Responding: {step: worker.Step{Action: worker.Respond, Bytes: make([]byte, 64<<20), Timeout: time.Hour}},
	} {
		t.Run(string(state), func(t *testing.T) {
			a := new(counted)
			d := &director{next: func(*worker.Client, int) worker.Step { return x.step }}
			r := directed(t, d, func(_ *worker.Config, s *worker.Service) { s.Preread, s.Admitter = x.preread, a })
			served := make(chan error, 1)
			go func() { served <- r.Serve() }()
			r.dial(t)
			r.waitFor(t, state)
			r.Cut(errNotAdmitted)
			if err := <-served; err != nil {
				t.Error(err)
			}
			if sum := r.Summary(); sum.Canceled != 1 || sum.Active != 0 || a.left.Load() != 1 {
				t.Errorf("the summary is %+v, %d have left", sum, a.left.Load())
			}
		})
	}
}
