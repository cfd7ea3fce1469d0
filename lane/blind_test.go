package lane_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/lane"
)

// TestBlindPackets: a packet that the socket of a session in user space refuses, for its number is out of the window, keeps the session there
// until MayLeave: one that has come back, and one that has never left.
func TestBlindPackets(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	for name, c := range map[string]struct {
		flags   byte
		payload string
		want    lane.Reason
	}{
		"data":                       {0x18, "z", lane.InFlight},
		"an end of file":             {0x11, "", lane.InFlight},
		"an RST":                     {0x14, "", lane.ResetSeen},
		"data, without ACK":          {0x08, "z", lane.InFlight},
		"an RST that has no ACK too": {0x04, "", lane.ResetSeen},
	} {
		for _, left := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				p := joined(t, l, "tcp", "127.0.0.1:0")
				if left {
					p.talk(t)
				}
				p.comesBack(t, time.Second)
				newForger(t, p).send(1<<30, c.flags, c.payload, false)
				p.exchange(t, []byte("one exchange"), p.client, p.server)
				p.exchange(t, []byte("shows devices"), p.server, p.client)
				p.MayLeave()
				until(t, "the packet keeps it in user space, or is forgotten", func() bool {
					p.exchange(t, []byte("there"), p.client, p.server)
					p.exchange(t, []byte("and back"), p.server, p.client)
					return p.Left() || p.Refused() == c.want
				})
				p.MayLeave()
				p.talk(t)
				if err := p.ComeBack(0); err != nil {
					t.Fatal(err)
				}
				p.exchange(t, []byte("here"), p.client, p.server)
			})
		}
	}
}
