package kerneltrace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"pgregory.net/rapid"
)

var self = Config{PIDs: []int{os.Getpid()}}

// TestResets: a reset that is sent and one that is received belong to the connection, also of one
// that there was before.
func TestResets(t *testing.T) {
	if !alone(t) {
		return
	}
	l := listen(t, "127.0.0.1:0")
	before, _ := pair(t, l)
	tracer := open(t, self)
	after, _ := pair(t, l)
	for _, c := range []*net.TCPConn{before, after} {
		local := addrOf(c.LocalAddr())
		if err := errors.Join(c.SetLinger(0), c.Close()); err != nil {
			t.Fatal(err)
		}
		until(t, tracer, "reset", func(r *Reading) bool {
			sent := event(r, func(e *Event) bool { return e.Kind == ResetSent && e.Local == local && e.Side == Connected })
			received := event(r, func(e *Event) bool { return e.Kind == ResetReceived && e.Remote == local && e.Side == Accepted })
			return sent == 1 && received == 1
		})
	}
}

// TestRetransmits: packets that are lost on the way to a backend are sent again, and those that
// nftables throws away here are drops with the kernel's reason.
func TestRetransmits(t *testing.T) {
	if !alone(t) {
		return
	}
	here, far := netns.Here(t), netns.New(t)
	link := here.Join(far)
	backend := far.Backend("one", netns.Echo, netip.AddrPortFrom(link.Far, 0))
	tracer := open(t, self)
	c, err := net.Dial("tcp", backend.Addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	until(t, tracer, "connect", func(r *Reading) bool {
		return slices.ContainsFunc(r.Durations, func(d Duration) bool { return d.Period == Connect && d.Place == backend.Addr && d.Count == 1 })
	})
	nft(t, far, fmt.Sprintf("table inet t { chain in { type filter hook input priority 0; tcp dport %d drop; }; }", backend.Addr.Port()))
	if _, err := c.Write([]byte("lost")); err != nil {
		t.Fatal(err)
	}
	r := until(t, tracer, "retransmission", func(r *Reading) bool {
		return event(r, func(e *Event) bool {
			return e.Kind == Retransmit && e.Remote == backend.Addr && e.Side == Connected && e.Reason == "timeout"
		}) > 0
	})
	i := slices.IndexFunc(r.Durations, func(d Duration) bool { return d.Period == RetransmitWait && d.Place == backend.Addr })
	if i < 0 || r.Durations[i].Max < 10*time.Millisecond {
		t.Errorf("no wait of 10 ms or more for it: %+v", r.Durations)
	}
	nft(t, here, fmt.Sprintf("table inet t { chain out { type filter hook postrouting priority 0; tcp dport %d drop; }; }", backend.Addr.Port()))
	until(t, tracer, "drop", func(r *Reading) bool {
		return event(r, func(e *Event) bool {
			return e.Kind == Drop && e.Remote == backend.Addr && !e.Incoming && e.Reason == "netfilter_drop"
		}) > 0
	})
}

// TestSynAck: the answer to a client that is lost belongs to the listener, and the connection that
// is given up to its address.
func TestSynAck(t *testing.T) {
	if !alone(t) {
		return
	}
	l := listen(t, "127.0.0.1:0")
	at := addrOf(l.Addr())
	tracer := open(t, self)
	nft(t, netns.Here(t), fmt.Sprintf("table inet t { chain in { type filter hook input priority 0; tcp sport %d drop; }; }", at.Port()))
	done := make(chan struct{})
	defer func() { <-done }()
	go func() {
		defer close(done)
		if c, err := net.DialTimeout("tcp", at.String(), 5*time.Second); err == nil {
			c.Close()
		}
	}()
	until(t, tracer, "SYN-ACK", func(r *Reading) bool {
		return event(r, func(e *Event) bool { return e.Kind == RetransmitSynAck && e.Local == at && e.Side == Accepted }) > 0 &&
			event(r, func(e *Event) bool { return e.Kind == ConnectFailed && e.Remote == at }) > 0
	})
}

// TestOthers: events of other processes are counted and belong to nothing.
func TestOthers(t *testing.T) {
	if !alone(t) {
		return
	}
	backend := netns.Here(t).Backend("one", netns.Reset, netip.MustParseAddrPort("127.0.0.1:0"))
	idle := netns.Here(t).Backend("two", netns.Silent, netip.MustParseAddrPort("127.0.0.1:0"))
	tracer := open(t, Config{PIDs: []int{idle.PID()}})
	c, err := net.Dial("tcp", backend.Addr.String())
	if err == nil {
		defer c.Close()
	}
	r := until(t, tracer, "event of others", func(r *Reading) bool { return r.Unmatched[ResetSent] > 0 })
	if len(r.Events) > 0 {
		t.Errorf("%+v, which are of others", r.Events)
	}
}

// TestThreads: a thread that is woken has waited for a CPU.
func TestThreads(t *testing.T) {
	tracer := open(t, self)
	r := until(t, tracer, "wait", func(r *Reading) bool { return len(r.Threads) > 0 })
	for _, th := range r.Threads {
		if th.PID != os.Getpid() || th.Max <= 0 || th.Quantile(0.99) > th.Max || th.Quantile(0.99) < th.Quantile(0.5) {
			t.Errorf("%+v", th)
		}
	}
}

// TestDeviceQueue: a packet waits in the queue of a device that has one.
func TestDeviceQueue(t *testing.T) {
	if !alone(t) {
		return
	}
	far, here := netns.New(t), netns.Here(t)
	l := here.Join(far)
	backend := far.Backend("one", netns.Echo, netip.AddrPortFrom(l.Far, 0))
	here.TC("qdisc add dev %s root pfifo limit 100", l.Device)
	tracer := open(t, self)
	c, err := net.Dial("tcp", backend.Addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	device, err := net.InterfaceByName(l.Device)
	if err != nil {
		t.Fatal(err)
	}
	until(t, tracer, "wait in the device", func(r *Reading) bool {
		_, _ = c.Write([]byte("x"))
		return slices.ContainsFunc(r.Durations, func(d Duration) bool {
			return d.Period == DeviceQueue && d.Place == backend.Addr && d.Device == device.Index && d.Quantile(1) > 0
		})
	})
}

// TestMissingTracepoint: it is named, and the others work.
func TestMissingTracepoint(t *testing.T) {
	tracer := open(t, Config{PIDs: self.PIDs, rename: map[string]string{"tcp_receive_reset": "penstock_no_such_thing"}})
	missing := tracer.Missing()
	if len(missing) != 1 || missing[0].Tracepoint != "penstock_no_such_thing" || !strings.Contains(missing[0].Err.Error(), "this kernel does not have this tracepoint") {
		t.Errorf("missing is %v", missing)
	}
	until(t, tracer, "wait", func(r *Reading) bool { return len(r.Threads) > 0 })
}

// TestNothingMissing: this kernel has every tracepoint.
func TestNothingMissing(t *testing.T) {
	tracer := open(t, self)
	for _, m := range tracer.Missing() {
		t.Errorf("%s: %v", m.Tracepoint, m.Err)
	}
	for _, note := range tracer.Notes() {
		t.Error(note)
	}
}

// TestKilled: nothing stays attached.
func TestKilled(t *testing.T) {
	open(t, self).Close()
	before := loadedPrograms(t)
	victim := startVictim(t)
	ours := loadedPrograms(t)
	maps.DeleteFunc(ours, func(id ebpfID, _ bool) bool { return before[id] })
	if len(ours) < len(attachments) {
		t.Fatalf("%d programs are loaded, want %d", len(ours), len(attachments))
	}
	if err := victim.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait()
	left := func() (n int) {
		now := loadedPrograms(t)
		for id := range ours {
			if now[id] {
				n++
			}
		}
		return n + linksTo(t, ours)
	}
	condition.Await(t, "no program and no link is left", func() bool { return left() == 0 })
}

// linksTo counts the links to some programs. One that another process makes at that moment ends the look with EAGAIN
// (kernel/bpf/syscall.c, bpf_link_by_id): it counts, and the next look shows more.
func linksTo(t *testing.T, programs map[ebpfID]bool) (n int) {
	t.Helper()
	var it link.Iterator
	defer it.Close()
	for it.Next() {
		if info, err := it.Link.Info(); err == nil && programs[info.Program] {
			n++
		}
	}
	if err := it.Err(); errors.Is(err, syscall.EAGAIN) {
		n++
	} else if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRefused: the capabilities are named.
func TestRefused(t *testing.T) {
	if !privilege.Ordinary(t) {
		return
	}
	_, err := Open(self)
	refused, ok := errors.AsType[*PrivilegeError](err)
	if !ok {
		t.Skip("an ordinary user may trace here:", err)
	}
	if want := []string{"CAP_BPF", "CAP_PERFMON"}; !slices.Equal(refused.Missing, want) || !strings.Contains(err.Error(), "CAP_BPF and CAP_PERFMON") {
		t.Errorf("%v, want %v", err, want)
	}
}

// TestCgroup: sockets and threads of a cgroup are traced, and others not.
func TestCgroup(t *testing.T) {
	if !alone(t) {
		return
	}
	root := cgroupRoot(t)
	dir := filepath.Join(root, fmt.Sprintf("penstock-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("no cgroup can be made:", err)
	}
	t.Cleanup(func() {
		for deadline := time.Now().Add(condition.Patience); os.Remove(dir) != nil && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
	})
	at := netip.MustParseAddrPort("127.0.0.1:0")
	member := netns.Here(t).Backend("in", netns.Reset, at)
	other := netns.Here(t).Backend("out", netns.Reset, at)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, member.PID()), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(member.Kill) // before the directory is removed
	pids, err := CgroupProcesses(dir)
	if err != nil || !slices.Equal(pids, []int{member.PID()}) {
		t.Fatal(pids, err)
	}
	tracer := open(t, Config{PIDs: pids, Cgroup: dir})
	for _, b := range []*netns.Backend{other, member} {
		if c, err := net.Dial("tcp", b.Addr.String()); err == nil {
			c.Close()
		}
	}
	r := until(t, tracer, "reset in the cgroup", func(r *Reading) bool {
		return event(r, func(e *Event) bool { return e.Kind == ResetSent && e.Local == member.Addr }) > 0 && len(r.Threads) > 0
	})
	if n := event(r, func(e *Event) bool { return e.Local == other.Addr }); n > 0 {
		t.Errorf("%d events of a process that is not in the cgroup", n)
	}
	for _, th := range r.Threads {
		if th.PID != member.PID() {
			t.Errorf("a thread of process %d", th.PID)
		}
	}
}

// cgroupRoot returns where cgroup v2 is mounted.
func cgroupRoot(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := cgroupIDs(dir); err == nil {
			return dir
		}
	}
	t.Skip("cgroup v2 is not mounted")
	return ""
}

// TestCgroupsBelow: a cgroup whose children go meanwhile, or have only threads, has its processes.
func TestCgroupsBelow(t *testing.T) {
	t.Parallel()
	gone := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(gone, "cgroup.procs"), []byte("1\n"), 0o600), os.Mkdir(filepath.Join(gone, "child"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if pids, err := CgroupProcesses(gone); err != nil || !slices.Equal(pids, []int{1}) {
		t.Errorf("a child without a list of processes: %v, %v", pids, err)
	}
	if _, err := CgroupProcesses(filepath.Join(gone, "child")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no cgroup: %v", err)
	}
	dir := filepath.Join(cgroupRoot(t), fmt.Sprintf("penstock-test-threads-%d", os.Getpid()))
	threads := filepath.Join(dir, "threads")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("no cgroup can be made:", err)
	}
	defer os.Remove(dir)
	if err := os.Mkdir(threads, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(threads)
	if err := os.WriteFile(filepath.Join(threads, "cgroup.type"), []byte("threaded"), 0o644); err != nil {
		t.Skip("no cgroup of threads can be made:", err)
	}
	if pids, err := CgroupProcesses(dir); err != nil || len(pids) != 0 {
		t.Errorf("a child with threads: %v, %v", pids, err)
	}
}

func TestNoCgroup(t *testing.T) {
	if _, err := cgroupIDs("/proc"); err == nil || !strings.Contains(err.Error(), "not a directory of cgroup v2") {
		t.Error(err)
	}
}

// TestClosedConnectionsDropNothing: a connection that is closed, by whichever side and with bytes unread, as by a
// health check, has lost no packet: what is left in its queues is freed with it.
func TestClosedConnectionsDropNothing(t *testing.T) {
	if !alone(t) {
		return
	}
	l := listen(t, "127.0.0.1:0")
	tracer := open(t, self)
	const times = 20
	for range times {
		for _, end := range []func(client, server *net.TCPConn){
			func(client, server *net.TCPConn) { client.Close(); server.Close() },
			func(client, server *net.TCPConn) { server.Close(); client.Close() },
			func(client, server *net.TCPConn) {
				client.CloseWrite()
				io.Copy(io.Discard, server)
				server.Close()
				io.Copy(io.Discard, client)
				client.Close()
			},
			func(client, server *net.TCPConn) { client.Close(); io.Copy(io.Discard, server); server.Close() },
			func(client, server *net.TCPConn) { server.Write([]byte("unread")); client.Close(); server.Close() },
			func(client, server *net.TCPConn) {
				client.Write([]byte("unread"))
				client.SetLinger(0)
				client.Close()
				server.Close()
			},
			func(client, server *net.TCPConn) { client.SetLinger(0); client.Close(); server.Close() },
			func(client, server *net.TCPConn) { client.Close(); server.Write([]byte("late")); server.Close() },
		} {
			client, server := pair(t, l)
			end(client, server)
		}
	}
	r := until(t, tracer, "resets", func(r *Reading) bool {
		return event(r, func(e *Event) bool { return e.Kind == ResetSent && e.Side == Connected }) >= times
	})
	for i := range r.Events {
		if e := &r.Events[i]; e.Kind == Drop {
			t.Errorf("%+v", e)
		}
	}
}

// bucketOf is record of bpf/trace.c.
func bucketOf(ns uint64) int {
	if ns < 128 {
		return 0
	}
	power := bits.Len64(ns) - 1
	return min((power-7)<<2+int(ns>>(power-2)&3), 127)
}

// TestBuckets: a duration is below the end of its bucket, and at least at that of the one before.
func TestBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.Uint64Range(0, 1<<50).Draw(t, "ns")
		i := bucketOf(ns)
		if d := time.Duration(ns); d >= bucketEnd(i) || i > 0 && d < bucketEnd(i-1) {
			t.Errorf("%d ns is in bucket %d, from %d to %d", ns, i, bucketEnd(i-1), bucketEnd(i))
		}
	})
}

func TestQuantile(t *testing.T) {
	var h Histogram
	if h.Quantile(0.99) != 0 {
		t.Error("an empty one has a quantile")
	}
	for i := range 100 {
		d := time.Duration(i+1) * time.Millisecond
		h.buckets[bucketOf(uint64(d))]++
		h.Count, h.Max = h.Count+1, d
	}
	if q := h.Quantile(0.5); q < 50*time.Millisecond || q > 63*time.Millisecond {
		t.Errorf("the median is %v", q)
	}
	if q := h.Quantile(1); q != 100*time.Millisecond {
		t.Errorf("the maximum is %v", q)
	}
	h.Add(&h)
	if h.Count != 200 || h.Max != 100*time.Millisecond {
		t.Errorf("%d, %v", h.Count, h.Max)
	}
}

func TestParseRow(t *testing.T) {
	const v4 = "   0: 0100007F:1F90 0200000A:C350 01 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 20 4 30 10 -1"
	row, ok := parseRow(v4)
	if !ok || row.Local != netip.MustParseAddrPort("127.0.0.1:8080") || row.Remote != netip.MustParseAddrPort("10.0.0.2:50000") || row.inode != 4711 || row.Listens {
		t.Errorf("%+v, %v", row, ok)
	}
	const v6 = "   1: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 9 1 0 100 0 0 10 0"
	row, ok = parseRow(v6)
	if !ok || row.Local != netip.MustParseAddrPort("[::]:80") || !row.Listens || len(row.places()) != 2 {
		t.Errorf("%+v, %v", row, ok)
	}
	if _, ok = parseRow("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"); ok {
		t.Error("the head is a row")
	}
}

// FuzzParseRow: no text makes it fail otherwise than by saying so.
func FuzzParseRow(f *testing.F) {
	f.Add("   0: 0100007F:1F90 0200000A:C350 01 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 20 4 30 10 -1")
	f.Fuzz(func(t *testing.T, line string) {
		if row, ok := parseRow(line); ok && !row.Local.IsValid() {
			t.Errorf("%q is a row without an address", line)
		}
	})
}

func TestAddresses(t *testing.T) {
	for _, text := range []string{"127.0.0.1", "::1", "2001:db8::5", "0.0.0.0", "::"} {
		a := netip.MustParseAddr(text)
		if got := addressOf(words(a)); got != a {
			t.Errorf("%v becomes %v", a, got)
		}
	}
}

func TestMain(m *testing.M) {
	asVictim()
	netns.Main()
	leak.Main(m)
}
