package lane_test

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/lane"
)

// TestZeroValues: the zero Lane is closed, the zero Session has ended, and each of their methods returns.
func TestZeroValues(t *testing.T) {
	t.Parallel()

	var l lane.Lane
	client, a, b, server := legs(t, listener(t, "127.0.0.1:0"))
	defer a.Close()
	defer b.Close()
	_, joins := l.Join(a, b, nil)
	_, registers := register(&l, sockets.FD(t, client), sockets.FD(t, server), &recorder{})
	var s lane.Session
	x, y, _, takes := s.TakeBack(0)
	for name, err := range map[string]error{"Join": joins, "Register": registers, "ComeBack": s.ComeBack(0), "TakeBack": takes, "Session.Leave": s.Leave(0, 1)} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := errors.Join(l.Close(), l.Leave()); err != nil {
		t.Error(err)
	}
	if st := l.Stats(); st.Joined != 0 || l.Memory() != 0 || len(l.Sessions()) != 0 {
		t.Errorf("%+v, %d bytes, %v", st, l.Memory(), l.Sessions())
	}
	s.MayLeave()
	s.Reset()
	s.Release()
	s.Wait()
	_, looked := s.Look()
	_, _, placed := s.Addresses()
	if x != -1 || y != -1 || s.Arm() || s.Disarm() || s.Left() || s.Adopted() || looked || placed || s.Refused() != lane.None || s.Tries() != 0 || s.Idle() != 0 || s.Bytes() != [2]uint64{} {
		t.Error("the zero Session does something")
	}
	for _, c := range [][2]*net.TCPConn{{client, a}, {server, b}} { // the connections are as they were
		if _, err := c[0].Write([]byte("m")); err != nil {
			t.Error(err)
		}
		if n, err := c[1].Read(make([]byte, 1)); n != 1 {
			t.Error(err)
		}
	}
}

// TestReasonTexts: a reason is the same few words as a string, as an error and formatted, and no two are the same.
func TestReasonTexts(t *testing.T) {
	t.Parallel()

	seen := make(map[string]lane.Reason)
	for r := lane.None; r <= lane.Unrestorable; r++ {
		text := r.String()
		if other, twice := seen[text]; twice || text == "" || text == "unknown" {
			t.Errorf("%d is %q, as %d is", uint8(r), text, uint8(other))
		}
		seen[text] = r
		if wrapped := fmt.Errorf("register: %w", r); r.Error() != text || fmt.Sprint(r) != text || wrapped.Error() != "register: "+text || !errors.Is(wrapped, r) {
			t.Errorf("%d is %q, %q and %v", uint8(r), text, r.Error(), wrapped)
		}
	}
	if r := lane.Unrestorable + 1; r.Error() != "unknown" {
		t.Errorf("a reason that there is not is %q", r.Error())
	}
}
