package worker_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

// A watching is a binding that keeps how its sessions stood.
type watching struct {
	tie
	looks sync.Mutex
	seen  []relay.Turn
}

func (b *watching) Watch(t relay.Turn, now int64) {
	b.looks.Lock()
	defer b.looks.Unlock()
	b.seen = append(b.seen, t)
}

// next returns how its sessions stand now.
func (b *watching) next(g *rig) []relay.Turn {
	b.looks.Lock()
	b.seen = nil
	b.looks.Unlock()
	g.Watch()
	b.looks.Lock()
	defer b.looks.Unlock()
	return b.seen
}

// TestWatch: each session that runs is shown to its binding, once each time, as it stands; one
// that has ended is not any more.
func TestWatch(t *testing.T) {
	t.Parallel()

	b := new(watching)
	limits := &relay.Limits{Of: b}
	d := straight(silent(t))
	d.reached = func() (*relay.Limits, error) { return limits, nil }
	r := directed(t, d, nil)
	if spent := r.Watch(); spent < 0 || len(b.seen) > 0 {
		t.Errorf("before it serves: %v, %+v", spent, b.seen)
	}
	r.serve(t)
	var conns []net.Conn
	const clients = 50
	for i := range clients {
		conns = append(conns, r.dial(t))
		if i%2 == 0 {
			if _, err := conns[i].Write([]byte("?")); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, func() bool {
		asked := 0
		for _, turn := range b.next(r) {
			if turn.Last == relay.SideA && turn.Asked > 0 {
				asked++
			}
		}
		return len(b.seen) == clients && asked == clients/2
	})
	for _, c := range conns[:clients/2] {
		reset(c)
	}
	eventually(t, func() bool { return len(b.next(r)) == clients-clients/2 })
}

// silent is a server that reads all bytes, and sends none.
func silent(t *testing.T) string {
	return sockets.Server(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
}
