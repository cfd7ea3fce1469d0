package lane_test

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/lane"
)

// TestDeviceNotKnown: an attempt to leave at which no packet of one side has been seen yet is not counted. A session whose packets of
// one side arrive at a device that the lane does not have is.
func TestDeviceNotKnown(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	here, client, server := netns.Here(t), netns.New(t), netns.New(t)
	front, back := here.Join(client), here.Join(server)
	t.Run("yet", func(t *testing.T) {
		l := open(t, "lo")
		client, near, far, server := legs(t, listener(t, "127.0.0.1:0"))
		a, b := descriptor(t, near), descriptor(t, far)
		blocking(t, [2]int{a, b})
		o := newOwner()
		s, err := register(l, a, b, o)
		if err != nil {
			t.Fatal(err)
		}
		<-o.ready
		p := pair{client, server, new([2]uint64), s}
		s.Arm()
		if p.pass(t, client, server, a, b) || s.Refused() != lane.Device {
			t.Fatalf("the first packet: refused %v", s.Refused())
		}
		until(t, "it leaves", func() bool {
			s.Arm()
			return p.pass(t, server, client, b, a)
		})
		if err := s.Leave(a, b); err != nil {
			t.Error(err)
		}
		if st := l.Stats(); st.Refused[lane.Device] != 0 {
			t.Errorf("%+v", st)
		}
	})
	t.Run("at all", func(t *testing.T) {
		l := open(t, front.Device)
		p := across(t, l, client, server, front.Near, back.Far)
		until(t, "it is counted", func() bool {
			p.exchange(t, []byte("by another way"), p.client, p.server)
			p.exchange(t, []byte("and back"), p.server, p.client)
			return l.Stats().Refused[lane.Device] > 0
		})
		if st := l.Stats(); st.Left != 0 || p.Refused() != lane.Device {
			t.Errorf("%+v, refused: %v", st, p.Refused())
		}
	})
}
