package worker_test

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// TestPrereadMemory: the bytes that are read of all clients whose first bytes drip are bounded together. A client for which there is no room is
// refused, those whose hellos come at once are served meanwhile, and what a client has taken is there for the next ones when it has left.
func TestPrereadMemory(t *testing.T) {
	t.Parallel()
	const room = 64 << 10
	d := straight(echo(t))
	r := newRigAt(t, "unix", sockets.Dir(t)+"/proxy", func(c *worker.Config) { // each piece is taken there
		c.PrereadMemory = room
		c.Listeners[0].Service = serviceOf(t, d)
		c.Listeners[0].Service.Preread = worker.Preread{Hello: true, Timeout: time.Hour}
	})
	r.serve(t)
	refused := func() int64 { return r.Summary().Refusals[worker.RefusedMemory] }
	hello := largeHello(t, "drip.example")
	taken := func() (n int64) {
		for _, l := range r.Summary().Loops {
			n += l.Taken
		}
		return n
	}
	for round := range 2 {
		before := refused()
		var clients []net.Conn
		for refused() == before {
			if len(clients) == room/len(hello)+1 {
				t.Fatalf("round %d: %d clients have had room", round, len(clients))
			}
			c := r.dial(t)
			clients = append(clients, c)
			most := taken() + int64(len(hello)-1)
			for piece := range slices.Chunk(hello[:len(hello)-1], 1000) {
				_, _ = c.Write(piece) // it may be refused
			}
			eventually(t, func() bool { return taken() >= most || refused() > before })
		}
		if len(clients) < 3 {
			t.Errorf("round %d: %d clients had no room", round, len(clients))
		}
		whole := helloOf(t, "usual.example")
		c := r.dial(t)
		mustWrite(t, c, whole)
		mustRead(t, c, whole)
		for _, c := range append(clients, c) {
			c.Close()
		}
		eventually(t, func() bool { return r.Active() == 0 })
	}
	if got := r.PrereadMemory(); got != 0 {
		t.Errorf("%d bytes are counted after the end of all clients", got)
	}
}
