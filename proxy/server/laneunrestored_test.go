package server_test

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

// TestLaneUnrestored: a session of which the kernel refuses one of the two sockets cannot come back. Both sides are reset, it is counted
// by the reason, and it leaves no descriptor, place or connection behind.
func TestLaneUnrestored(t *testing.T) {
	if !laned(t) {
		return
	}
	endpoint, far := laneEndpoint(t)
	r := &rig{loadbalancer.Setting{Level: slog.LevelDebug}.Start(t, laneConfig(endpoint, "lane: auto"))}
	for i, c := range []struct {
		name   string
		refuse func(t *testing.T, client *net.TCPConn) (allow func())
		want   lane.Reason
		cause  error
	}{
		{"the client's", takeAddress, lane.AddressTaken, syscall.EADDRNOTAVAIL},
		{"the endpoint's, after the client's", oneDescriptorTooFew, lane.Unrestorable, syscall.EMFILE},
	} {
		t.Run(c.name, func(t *testing.T) {
			near := client(t, r.At("l"))
			server := <-far
			defer server.Close()
			r.leavesFor(t, near, server)
			r.Until("the sockets are closed", func() bool { return r.Status().Lane.Left == int64(i+1) })
			held := descriptors(t)
			allow := c.refuse(t, near)
			back, err := r.ReturnLane("test")
			allow()
			if err != nil || back.Returned != 0 || back.Reset != 1 {
				t.Errorf("%+v, %v", back, err)
			}
			for side, end := range map[string]*net.TCPConn{"client": near, "endpoint": server} {
				if err := gone(t, end); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the %s: %v", side, err)
				}
			}
			r.Until("the session has ended", func() bool { return r.session(t) == nil && r.Status().Connections.Active == 0 })
			r.Logs("session ended", "client="+near.LocalAddr().String(), c.want.String(), c.cause.Error())
			r.unrestored(t, c.want, int64(i+1))
			r.Until("the descriptor that has held its port is closed, and no other one was left", func() bool { return descriptors(t) == held-1 })
		})
	}
}

// unrestored expects one session that could not come back for a reason, and so many in all.
func (r *rig) unrestored(t *testing.T, why lane.Reason, all int64) {
	t.Helper()
	st := r.Status().Lane
	if int64(len(st.Unrestored)) != all || st.Unrestored[why.String()] != 1 || st.Reset != all || st.Returned != 0 || st.Ended != all || st.Active != 0 {
		t.Errorf("%+v", st)
	}
	sum := int64(0)
	for _, n := range closesOf(r, "l") {
		sum += n
	}
	if sum != all {
		t.Errorf("sessions have ended %d times, want %d: %v", sum, all, closesOf(r, "l"))
	}
}

// takeAddress has another socket have the connection to a client.
func takeAddress(t *testing.T, client *net.TCPConn) (allow func()) {
	t.Helper()
	at := func(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }
	fd, err := sys.Established(at(client.RemoteAddr()), at(client.LocalAddr()), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = sys.Close(fd) } // in repair: nothing is sent
}

// oneDescriptorTooFew leaves no descriptor free: a session that comes back gives one away, and needs two.
func oneDescriptorTooFew(t *testing.T, _ *net.TCPConn) (allow func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	var taken []int
	highest := 0
	for range 64 {
		fd, err := syscall.Dup(0)
		if err != nil {
			t.Fatal(err)
		}
		taken, highest = append(taken, fd), max(highest, fd)
	}
	low := was
	low.Cur = uint64(highest + 1)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	for {
		fd, err := syscall.Dup(0)
		if err != nil {
			break
		}
		taken = append(taken, fd)
	}
	return func() {
		for _, fd := range taken {
			_ = syscall.Close(fd)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}
}
