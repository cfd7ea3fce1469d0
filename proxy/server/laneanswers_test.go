package server_test

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// TestLaneAnswers: an endpoint that answers in the lane answers clients: it is not ejected because others have waited for an answer in vain,
// from two addresses, again and again.
func TestLaneAnswers(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	answers := func(all bool) string {
		return sockets.Server(t, func(c net.Conn) {
			b := make([]byte, 64)
			for {
				n, err := c.Read(b)
				if err != nil {
					return
				}
				if !all && b[0] == '?' {
					continue
				}
				if _, err := c.Write(b[:n]); err != nil {
					return
				}
			}
		})
	}
	r := start(t, fmt.Sprintf(`
lane: {devices: [lo], sessions: 64, after: 5ms}
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, lane: require}]
upstreams: [{name: u, endpoints: [{name: all, address: %q}, {name: some, address: %q}]}]`, answers(true), answers(false)))
	stop := make(chan struct{})
	var served sync.WaitGroup
	const sessions = 6 // three at each endpoint
	for range sessions {
		c := sockets.Dial(t, r.At("l"))
		served.Go(func() {
			defer c.Close()
			b := make([]byte, 8)
			for {
				select {
				case <-stop:
					return
				default:
				}
				_ = c.SetDeadline(time.Now().Add(patience))
				if _, err := c.Write(b); err != nil {
					t.Error(err)
					return
				}
				if _, err := c.Read(b); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	r.Until("they have left", func() bool { return r.Status().Lane.Left == sessions })
	for range 300 { // they usually answer
		c := client(t, r.At("l"))
		echoes(t, c, "soon")
		c.Close()
	}
	const rounds, clients, waits = 5, 24, 2 * time.Second
	for round := range rounds {
		var asking sync.WaitGroup
		for i := range clients {
			asking.Go(func() {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i/2%2))}}
				c, err := d.Dial("tcp", r.At("l"))
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(waits))
				_, _ = c.Write([]byte("?"))
				_, _ = c.Read(make([]byte, 1)) // for as long as it has patience
			})
		}
		asking.Wait()
		if e := r.Endpoint("u", "some"); e.State != admin.Up {
			t.Errorf("after %d rounds it is %s: %s", round+1, e.State, e.Why)
			break
		}
	}
	close(stop)
	served.Wait()
}

// TestLaneVerdictOfPauses: pauses that are shorter than those of a delayed acknowledgement are the pausing program's, not the way's: an
// acknowledgement that waits for the next data is no long way.
func TestLaneVerdictOfPauses(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	const pause = 20 * time.Millisecond // of a program at work
	for verdict, far := range map[string]time.Duration{"endpoint": pause, "client": 0} {
		t.Run(verdict, func(t *testing.T) {
			r := start(t, laneConfig(sockets.Server(t, func(c net.Conn) {
				b := make([]byte, 64)
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					time.Sleep(far)
					if _, err := c.Write(b[:n]); err != nil {
						return
					}
				}
			}), "lane: require"))
			c := client(t, r.At("l"))
			r.leaves(t, c)
			most := 0.0
			for began := time.Now(); most < 0.7; {
				time.Sleep(pause - far)
				echoes(t, c, "there and back")
				w, err := r.Why(t.Context(), admin.WhyQuery{})
				if err != nil || len(w.Sessions) != 1 {
					t.Fatal(w.Sessions, err)
				}
				if most = w.Sessions[0].Shares[verdict]; time.Since(began) > patience/3 {
					t.Fatalf("%s after %v: %v", w.Verdict, time.Since(began), w.Sessions[0].Shares)
				}
			}
		})
	}
}
