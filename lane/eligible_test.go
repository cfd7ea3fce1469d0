package lane_test

import (
	"errors"
	"net"
	"os"
	"regexp"
	"syscall"
	"testing"

	"github.com/penstock/penstock/lane"
)

// TestNotEligible: a session that cannot leave user space is relayed there, and has its reason.
func TestNotEligible(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 1})
	if err != nil {
		t.Fatal(err)
	}
	var staying pair
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		wantReset(t, "one that stays, after Close", staying.client)
	}()
	first := joined(t, l, "tcp", "127.0.0.1:0")
	first.talk(t)
	v4, v6 := listener(t, "127.0.0.1:0"), listener(t, "[::1]:0")
	for want, p := range map[lane.Reason]func() pair{
		lane.Full: func() pair { return joined(t, l, "tcp", "127.0.0.1:0") },
		lane.MixedFamilies: func() pair {
			client, a := connected(t, v4)
			b, server := connected(t, v6)
			return join(t, l, client, a, b, server)
		},
		lane.SharedConnection: func() pair { // both ends of one connection, with another in between
			client, a := connected(t, v4)
			return join(t, l, client, a, client, a)
		},
	} {
		t.Run(want.String(), func(t *testing.T) {
			if want == lane.SharedConnection {
				if p := p(); p.Refused() != want {
					t.Errorf("refused: %v", p.Refused())
				}
				return
			}
			p := p()
			p.transfer(t, 100_000, 1, false)
			if !errors.Is(p.Refused(), want) || p.Left() {
				t.Errorf("refused: %v, left: %v", p.Refused(), p.Left())
			}
		})
	}
	if n := l.Stats().Refused; n[lane.Full] != 1 || n[lane.MixedFamilies] != 1 {
		t.Errorf("%v", n)
	}
	first.exchange(t, []byte("goes on"), first.client, first.server)
	staying = joined(t, l, "tcp", "127.0.0.1:0")
}

func listener(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestMarked: packets of a socket with a mark may be routed by it, so its session stays in user space.
func TestMarked(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	client, a, b, server := legs(t, listener(t, "127.0.0.1:0"))
	raw, err := b.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_MARK, 7) })
	if err != nil {
		t.Fatal(err)
	}
	p := join(t, l, client, a, b, server)
	until(t, "it may not leave", func() bool {
		p.exchange(t, []byte("there"), p.client, p.server)
		p.exchange(t, []byte("back"), p.server, p.client)
		return p.Refused() == lane.Route
	})
	if p.Left() {
		t.Error("it has left user space")
	}
}

// TestReasons: each has a text of its own.
func TestReasons(t *testing.T) {
	t.Parallel()

	seen := make(map[string]bool)
	for r := lane.None; r.String() != "unknown"; r++ {
		if r.String() == "" || seen[r.String()] {
			t.Errorf("reason %d: %q", r, r.String())
		}
		seen[r.String()] = true
	}
	if len(seen) < 20 {
		t.Errorf("%d reasons", len(seen))
	}
}

// TestReasonsOfPrograms: the programs number the reasons as Go does.
func TestReasonsOfPrograms(t *testing.T) {
	t.Parallel()

	header, err := os.ReadFile("internal/program/bpf/session.h")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^\t(WHY_[A-Z_]+),$`).FindAllSubmatch(header, -1)
	want := map[string]lane.Reason{
		"WHY_NONE": lane.None, "WHY_NO_SOCKET": lane.NoSocket, "WHY_NOT_ESTABLISHED": lane.NotEstablished, "WHY_UNREAD": lane.Unread,
		"WHY_OUT_OF_ORDER": lane.OutOfOrder, "WHY_NOT_NEXT": lane.NotNext, "WHY_UNACKNOWLEDGED": lane.Unacknowledged, "WHY_IN_FLIGHT": lane.InFlight,
		"WHY_RESET": lane.ResetSeen, "WHY_TIMESTAMPS": lane.Timestamps, "WHY_MICROSECONDS": lane.Microseconds, "WHY_MSS": lane.SegmentSize,
		"WHY_PATH_MTU": lane.PathMTU, "WHY_ECN": lane.ECN, "WHY_MPTCP": lane.Multipath, "WHY_SIGNED": lane.Signed, "WHY_URGENT": lane.Urgent,
		"WHY_ULP": lane.UpperLayer, "WHY_BIG_TCP": lane.BigTCP, "WHY_DEVICE": lane.Device, "WHY_ROUTE": lane.Route, "WHY_TAKEN": lane.Interrupted, "WHY_COUNT": lane.Interrupted + 1,
	}
	if len(names) != len(want) {
		t.Errorf("%d reasons in C, %d in Go", len(names), len(want))
	}
	for i, m := range names {
		if r, ok := want[string(m[1])]; !ok || int(r) != i {
			t.Errorf("%s is %d in C and %d in Go", m[1], i, r)
		}
	}
}
