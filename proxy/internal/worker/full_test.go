package worker_test

import (
	"net"
	"slices"
	"testing"

	"github.com/penstock/penstock/proxy/internal/worker"
)

// The reached limit is reported once for all clients that wait in turn. Room is reported
// when no client waits any more.
func TestFullIsToldWhenItChanges(t *testing.T) {
	t.Parallel()

	r := newRig(t, func(c *worker.Config) { c.MaxConnections, c.Loops = 1, 1 })
	for round := range 3 {
		var conns []net.Conn
		for range 20 {
			conns = append(conns, r.dial(t)) // in the accept queue, or waiting for it
		}
		if round == 0 {
			r.serve(t)
		}
		for _, c := range conns {
			talk(t, c)
			c.Close()
		}
		eventually(t, func() bool { told := r.witness.told(); return len(told) > 0 && !told[len(told)-1] })
	}
	if got, want := r.witness.told(), []bool{true, false, true, false, true, false}; !slices.Equal(got, want) {
		t.Errorf("reported %v, want %v", got, want)
	}
}

func (w *witness) told() []bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.full)
}
