package server_test

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// TestWhyOfVanished: while nothing comes from a peer any more, each look names the way to it, also those between two retransmissions.
func TestWhyOfVanished(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		client bool // vanishes
		want   string
	}{"endpoint": {want: "endpoint_network"}, "client": {client: true, want: "client_network"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			accepted, goOn := make(chan net.Conn, 1), make(chan struct{})
			endpoint := sockets.Server(t, func(conn net.Conn) {
				accepted <- conn
				select {
				case <-goOn:
					_, _ = conn.Write(make([]byte, 1<<20)) // for the client, with what follows until it is full
				case <-t.Context().Done():
				}
				<-t.Context().Done()
			})
			r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]
`, endpoint))
			at := client(t, r.Listener("l").Addresses[0])
			vanishes := <-accepted
			if c.client {
				vanishes = at
			}
			if err := filter(sockets.FD(t, vanishes.(syscall.Conn)), syscall.SO_ATTACH_FILTER); err != nil {
				t.Fatal(err)
			}
			if c.client {
				close(goOn)
			} else if _, err := at.Write([]byte("?")); err != nil {
				t.Fatal(err)
			}
			look := func(window time.Duration) *admin.SessionWhy {
				w, err := r.Server.Why(t.Context(), admin.WhyQuery{For: window})
				if err != nil || len(w.Sessions) != 1 {
					t.Fatalf("%+v, %v", w, err)
				}
				return &w.Sessions[0]
			}
			leg := func(s *admin.SessionWhy) *admin.Leg {
				if c.client {
					return s.ClientLeg
				}
				return s.EndpointLeg
			}
			r.Until("packets are sent again", func() bool { return leg(look(0)).Retransmitted >= 3 })
			between := 0
			for range 8 {
				s := look(150 * time.Millisecond)
				if s.Verdict != c.want {
					t.Errorf("%s: %s, %+v", s.Verdict, s.Why, leg(s))
				}
				if leg(s).Retransmitted == 0 {
					between++
				}
			}
			if between == 0 {
				t.Error("a retransmission fell into each window")
			}
		})
	}
}
