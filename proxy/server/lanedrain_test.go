package server_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/server"
)

// TestLaneDrainTimeout: the message of the end of a drain with lane.leave counts the sessions that it resets, and those that go on beside, as its begin does.
func TestLaneDrainTimeout(t *testing.T) {
	t.Parallel()

	endpoint := sockets.Server(t, sockets.Echo)
	text := `listeners: [{name: web, bind: "127.0.0.1:0", upstream: u}, {name: here, bind: "127.0.0.1:0", upstream: u, lane: off}]
upstreams: [{name: u, health_check: off, endpoints: [` + endpoint + `]}]`
	r, adopted := adopts(t, text, text, nil, "web")
	if r == nil {
		return
	}
	own, here := r.leaveBy(t, "web", 1), client(t, r.At("here"))
	echoes(t, here, "here")
	r.Stop()
	if err := r.End(); !errors.Is(err, server.ErrCut) || !strings.HasSuffix(err.Error(), ": 1") {
		t.Error(err)
	}
	r.Logs("msg=draining active=1 go_on=2 ")
	r.Logs(`msg="drain timeout" active=1 go_on=2 `)
	echoes(t, own, "without a process")
	echoes(t, adopted[0], "without a process")
}

// TestLaneAdoptedEndOfADrainIsSpread: without lane.leave adopted sessions are reset in the steps in which those of the process are, whether there are any of these
// or not, and all of them by the end of the drain, which counts them.
func TestLaneAdoptedEndOfADrainIsSpread(t *testing.T) {
	t.Parallel()

	for _, own := range []int{0, 1} {
		t.Run(fmt.Sprintf("beside %d", own), func(t *testing.T) { drainAdopted(t, own) })
	}
}

func drainAdopted(t *testing.T, own int) {
	const clients, drain = 24, 30 * time.Second
	pins := pinned(t)
	if pins == "" {
		return
	}
	text := `lane: {devices: [lo], sessions: 64, after: 5ms, default: require, pins: ` + pins + `, leave: %v}
listeners: [{name: web, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, health_check: off, endpoints: [` + sockets.Server(t, sockets.Echo) + `]}]`
	before := start(t, fmt.Sprintf(text, true))
	var conns []*net.TCPConn
	for n := range clients {
		conns = append(conns, before.leaveBy(t, "web", n+1))
	}
	if err := before.End(); err != nil {
		t.Fatal(err)
	}
	r := &rig{loadbalancer.Setting{Drain: drain}.Start(t, fmt.Sprintf(text, false))}
	r.Until("they are adopted", func() bool { return r.Status().Lane.AdoptedActive == clients })
	spread, times := worker.NewSpread(drain), stopClock(r)
	var last []*net.TCPConn
	for range own {
		c := client(t, r.At("web"))
		echoes(t, c, "of this process")
		last = append(last, c)
	}
	r.Stop()
	step := times.next(drain)
	times.any(10 * time.Second) // the timer of the log lines
	if own == 0 {
		r.Logs("drain waits for adopted sessions", fmt.Sprint("sessions=", clients))
	}
	left := func() int { return alive(t, conns) }
	for n := 1; n < spread.Steps; n++ {
		step.ring()
		step = times.any(spread.Every)
		if n != spread.Steps/2 {
			continue
		}
		r.Until("some are reset, and some are not", func() bool { n := left(); return n > 0 && n < clients })
	}
	step.ring()
	r.Until("all are reset", func() bool { return left() == 0 && alive(t, last) == 0 })
	if err := r.End(); !errors.Is(err, server.ErrCut) || !strings.HasSuffix(err.Error(), fmt.Sprint(": ", clients+own)) {
		t.Errorf("the process ends with %v, want %d cut", err, clients+own)
	}
	r.Logs("level=WARN", `msg="drain timeout"`, fmt.Sprint("active=", clients+own), "resets_within=2.94s")
	r.Logs("adopted sessions are reset, for the process ends", fmt.Sprint("sessions=", clients))
}
