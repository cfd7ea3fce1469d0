package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/lanes"
	"github.com/penstock/penstock/proxy/server"
)

// laned reports whether the test goes on: in a child process with a network of its own. It is skipped for users
// that may not have a lane, never for root.
func laned(t *testing.T) bool {
	t.Helper()
	var missing *lane.Unavailable
	if err := lane.Probe(); errors.As(err, &missing) && os.Geteuid() != 0 {
		t.Skip("no lane for an ordinary user:", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return netns.Alone(t)
}

// withLane is a load balancer before an echo, whose sessions may leave early.
func withLane(t *testing.T, listener string) *rig {
	t.Helper()
	return start(t, laneConfig(sockets.Server(t, sockets.Echo), listener))
}

func laneConfig(endpoint, listener string) string {
	return fmt.Sprintf(`
lane: {devices: [lo], sessions: 64, after: 5ms}
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, %s}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`, listener, endpoint)
}

// session returns the one session of the balancer; nil: there is none.
func (r *rig) session(t *testing.T) *admin.Session {
	t.Helper()
	list, err := r.Sessions(context.Background(), admin.SessionQuery{}, admin.SessionOrder{})
	must(t, err)
	for s := range list.Sessions {
		return &s
	}
	return nil
}

// leaves echoes until the client's session has left user space, and returns how many bytes that took.
func (r *rig) leaves(t *testing.T, c net.Conn) (sent int64) {
	t.Helper()
	r.Until("the session has left", func() bool {
		echoes(t, c, "there and back")
		sent += int64(len("there and back"))
		s := r.session(t)
		return s != nil && s.Engine == "lane"
	})
	return sent
}

// TestLane: a session leaves user space and goes on there, every byte of it counted, and ends as its ends have it
// end.
func TestLane(t *testing.T) {
	if !laned(t) {
		return
	}
	r := withLane(t, "lane: require")
	r.laneSession(t)
	before, once := descriptors(t), r.Status().Bytes.ClientToEndpoint.All()
	twice := once + r.laneSession(t)
	if b := r.Status().Bytes; b.ClientToEndpoint.All() != twice || b.EndpointToClient.All() != twice {
		t.Errorf("bytes of both sessions: %+v, want %d", b, twice)
	}
	r.Until("a session leaves no descriptor but the one that holds its port", func() bool { return descriptors(t) <= before+1 })
}

// laneSession has a session leave user space, and end, and returns its bytes.
func (r *rig) laneSession(t *testing.T) (sent int64) {
	t.Helper()
	left := int64(0)
	if l := r.Status().Lane; l != nil {
		left = l.Left
	}
	c := client(t, r.At("l"))
	defer c.Close()
	sent = r.leaves(t, c)
	s := r.session(t)
	if s.Client != c.LocalAddr().String() || s.Endpoint == "" || s.EndpointLocal == "" || s.IdleUs == nil || *s.IdleUs > time.Minute.Microseconds() {
		t.Errorf("the session: %+v", s)
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	go func() { _, _ = c.Write(big) }()
	got := make([]byte, len(big))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, big) {
		t.Fatal("bulk:", err)
	}
	sent += int64(len(big))
	r.Until("the sockets are closed", func() bool { return r.Status().Lane.Left == left+1 })
	r.Until("all bytes are counted", func() bool {
		b := r.session(t).Bytes
		return b.ClientToEndpoint.All() == sent && b.EndpointToClient.All() == sent
	})
	st := r.Status()
	if st.Lane == nil || st.Lane.State != admin.LaneOn || st.Connections.Active != 1 || st.Bytes.ClientToEndpoint.Lane == 0 {
		t.Errorf("status: %+v, %+v", st.Lane, st.Bytes)
	}
	must(t, c.CloseWrite())
	if n, err := c.Read(got); n != 0 || err != io.EOF {
		t.Errorf("after the half-close: %d, %v", n, err)
	}
	r.Until("the session has ended", func() bool { return r.session(t) == nil })
	if active := r.Status().Connections.Active; active != 0 {
		t.Errorf("after the end: %d connections", active)
	}
	return sent
}

// TestLaneIdle: a session in the lane ends by its idle timeout. Nothing is unread, so its client gets an end of file.
func TestLaneIdle(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	r := withLane(t, "lane: auto, timeouts: {idle: 400ms}")
	c := client(t, r.At("l"))
	r.leaves(t, c)
	if err := gone(t, c); err != io.EOF {
		t.Errorf("%v, want an end of file", err)
	}
	r.Until("the session has ended", func() bool { return r.session(t) == nil })
}

// TestLaneReload: sessions that have left come back when a reload has the sessions of their listener stay, and leave again when
// another one lets them.
func TestLaneReload(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	endpoint := sockets.Server(t, sockets.Echo)
	r := start(t, laneConfig(endpoint, "lane: auto"))
	c := client(t, r.At("l"))
	sent := r.leaves(t, c)
	r.Reload(laneConfig(endpoint, "lane: auto, limits: {connections: 5}"))
	sent += echoed(t, c, "a reload that leaves the lane alone")
	r.Reload(laneConfig(endpoint, "lane: off"))
	r.Logs("have come back to user space", "sessions=1", "reset=0")
	if st := r.Status().Lane; st.Wanted || st.Returned != 1 {
		t.Errorf("no listener has lane: %+v", st)
	}
	sent += echoed(t, c, "in user space")
	r.counts(t, false, sent)
	r.Reload(laneConfig(endpoint, "lane: auto"))
	sent += r.leaves(t, c)
	r.counts(t, true, sent)
	if st := r.Status().Lane; !st.Wanted || st.Reset != 0 {
		t.Errorf("a listener has lane: %+v", st)
	}
}

// echoed is echoes, and returns how many bytes it has sent.
func echoed(t *testing.T, c net.Conn, text string) int64 {
	t.Helper()
	echoes(t, c, text)
	return int64(len(text))
}

// counts expects that the one session has left user space or not, and has moved so many bytes each way.
func (r *rig) counts(t *testing.T, left bool, bytes int64) {
	t.Helper()
	r.Until("its bytes are counted", func() bool {
		s := r.session(t)
		return s != nil && (s.Engine == admin.EngineLane) == left && s.Bytes.ClientToEndpoint.All() == bytes && s.Bytes.EndpointToClient.All() == bytes
	})
}

// TestLaneSwitch: by hand, sessions that have left are reset, others stay while it is off, and leave again afterwards.
func TestLaneSwitch(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	r := withLane(t, "lane: auto")
	c := client(t, r.At("l"))
	r.leaves(t, c)
	if changed, err := r.SwitchLane(false, "test"); err != nil || changed.State != admin.LaneOff {
		t.Fatal(changed, err)
	}
	echoes(t, c, "it goes on there")
	if changed, err := r.FlushLane("test"); err != nil || changed.Reset != 1 {
		t.Fatal(changed, err)
	}
	isReset(t, c)
	stays := client(t, r.At("l"))
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
		echoes(t, stays, "here")
	}
	if st := r.Status().Lane; st.State != admin.LaneOff || st.Left != 1 {
		t.Errorf("while it is off: %+v", st)
	}
	stays.Close()
	r.Until("it has ended", func() bool { return r.session(t) == nil })
	must(t, second(r.SwitchLane(true, "test")))
	r.leaves(t, client(t, r.At("l")))
}

// TestLaneFull: a session that finds no place in the lane leaves when another one has gone.
func TestLaneFull(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	r := start(t, strings.Replace(laneConfig(sockets.Server(t, sockets.Echo), "lane: auto"), "sessions: 64", "sessions: 16", 1))
	var clients []net.Conn
	for n := range 16 {
		clients = append(clients, r.leaveBy(t, "l", n+1))
	}
	waits := client(t, r.At("l"))
	r.Until("it finds no place", func() bool {
		echoes(t, waits, "there and back")
		return r.Status().Lane.Stays[lane.Full.String()] > 0
	})
	for _, c := range clients[:8] {
		c.Close()
	}
	r.Until("it has left", func() bool {
		echoes(t, waits, "there and back")
		return r.Status().Lane.Left == 17
	})
}

// TestLaneEnds: sessions that have left are ended by hand, by the end of a drain, and are counted as others.
func TestLaneEnds(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	r := withLane(t, "lane: auto")
	c := client(t, r.At("l"))
	r.leaves(t, c)
	if ended, err := r.EndSessions(context.Background(), admin.EndQuery{All: true, Now: true}, "test"); err != nil || ended.Ended != 1 {
		t.Error(ended, err)
	}
	isReset(t, c)
	last := client(t, r.At("l"))
	r.leaves(t, last)
	r.Stop()
	if err := r.End(); !errors.Is(err, server.ErrCut) {
		t.Error(err)
	}
	isReset(t, last)
}

// TestLaneDrainCounts: the log counts each session in the lane once that a drain resets, however many steps come before the lane has
// reset it.
func TestLaneDrainCounts(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	of := func(endpoint string) string {
		return strings.Replace(laneConfig(endpoint, "lane: auto"), "health_check: off", "health_check: off, drain_timeout: 1s", 1)
	}
	r := start(t, of(sockets.Server(t, sockets.Echo)))
	const sessions = 16
	var clients []net.Conn
	for range sessions {
		clients = append(clients, client(t, r.At("l")))
	}
	r.Until("all have left", func() bool {
		for _, c := range clients {
			echoes(t, c, "there and back")
		}
		return r.Status().Lane.Active == sessions
	})
	r.Reload(of(sockets.Server(t, sockets.Echo)))
	r.Logs(`msg="sessions were reset"`, fmt.Sprintf("sessions=%d ", sessions))
}

// TestLaneStays: sessions of which something has to be looked at stay in user space, and are counted by the reason.
func TestLaneStays(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	unix := filepath.Join(sockets.Dir(t), "l")
	for reason, listener := range map[string]string{
		"bandwidth limit": `limits: {bandwidth: 1GiB}`,
		"mirror":          `mirror: {upstream: v}`,
		"rewrite":         `rewrite: {direction: down, wasm: m.wasm}`,
		"unix socket":     `bind: "unix:` + unix + `"`,
	} {
		t.Run(reason, func(t *testing.T) {
			if reason != "unix socket" {
				listener = `bind: "127.0.0.1:0", ` + listener
			}
			r := start(t, fmt.Sprintf(`
lane: {devices: [lo], sessions: 64, after: 1ms}
listeners: [{name: l, upstream: u, lane: auto, %s}]
upstreams: [{name: u, endpoints: [%q], health_check: off}, {name: v, endpoints: [%[2]q], health_check: off}]`, listener, sockets.Server(t, sockets.Echo)), "m.wasm", rewriteModule(""))
			c, err := net.Dial(strings.SplitN(r.At("l"), ":", 2)[0], unix)
			if err != nil {
				c = client(t, r.At("l"))
			}
			defer c.Close()
			r.Until("it is counted", func() bool {
				echoes(t, c, "here\n")
				return r.Status().Lane.Stays[reason] == 1
			})
			if st := r.Status().Lane; st.Left != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestLaneIsMissing: where there is no lane, require refuses with the reason, and auto serves as without it and says
// so.
func TestLaneIsMissing(t *testing.T) {
	t.Parallel()

	var missing *lane.Unavailable
	if err := lane.Probe(); !errors.As(err, &missing) {
		if !privilege.Ordinary(t) {
			return
		}
		if err = lane.Probe(); !errors.As(err, &missing) {
			t.Fatal("an ordinary user has a lane:", err)
		}
	}
	endpoint := sockets.Server(t, sockets.Echo)
	r := start(t, laneConfig(endpoint, "lane: auto"))
	echoes(t, client(t, r.At("l")), "as without")
	var st *admin.Lane
	r.Until("the lane has been opened, or not", func() bool { st = r.Status().Lane; return st.State != admin.LaneOpening })
	if st.State != admin.LaneUnavailable || !strings.Contains(st.Why, missing.Missing[0]) {
		t.Errorf("%+v", st)
	}
	r.Logs("there is no lane", missing.Missing[0])
	_, err := server.Open(t.Context(), r.Load(laneConfig(endpoint, "lane: require")), server.Options{MaxConnections: 10})
	if !errors.As(err, &missing) {
		t.Errorf("require: %v", err)
	}
}

// TestLaneAnyAddress: clients of a socket for all addresses of both families leave user space as well.
func TestLaneAnyAddress(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	r := start(t, strings.Replace(laneConfig(sockets.Server(t, sockets.Echo), "lane: auto"), "127.0.0.1:0", ":0", 1))
	_, port, err := net.SplitHostPort(r.At("l"))
	must(t, err)
	r.leaves(t, client(t, net.JoinHostPort("127.0.0.1", port)))
}

// pinned is laned with a BPF file system of its own. It returns a directory of pins, which is not there yet; "" ends the test.
func pinned(t *testing.T) string {
	t.Helper()
	var missing *lane.Unavailable
	if err := lane.Probe(); errors.As(err, &missing) && os.Geteuid() != 0 {
		t.Skip("no lane for an ordinary user:", err)
	} else if err != nil {
		t.Fatal(err)
	}
	if !privilege.NetworkAndMounts(t) {
		return ""
	}
	dir := t.TempDir()
	if err := errors.Join(sys.InterfaceUp("lo"), syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("bpf", dir, "bpf", 0, "mode=0700")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir + "/lane"
}

func pinnedConfig(endpoint, listener, lane string) string {
	return strings.Replace(laneConfig(endpoint, listener), "lane: {", "lane: {"+lane+", ", 1)
}

// TestLaneLeave: with leave the end of a process does not end the sessions that have left, and the next one has them.
func TestLaneLeave(t *testing.T) {
	t.Parallel()

	pins := pinned(t)
	if pins == "" {
		return
	}
	text := pinnedConfig(sockets.Server(t, sockets.Echo), "lane: require", "leave: true, pins: "+pins)
	r := start(t, text)
	if at, err := os.Stat(pins); err != nil || at.Mode().Perm() != 0o700 {
		t.Errorf("the directory was not made: %v, %v", at, err)
	}
	if lanes.CheckPins(pins) != nil || lanes.CheckPins(pins+"/not/there") == nil || lanes.CheckPins(t.TempDir()+"/x") == nil {
		t.Error("where pins can be")
	}
	if err := lanes.CheckPins(t.TempDir()); err == nil || !strings.HasSuffix(err.Error(), ", or write a directory in /sys/fs/bpf") {
		t.Errorf("another file system: %v", err)
	}
	c := client(t, r.At("l"))
	r.leaves(t, c)
	if err := r.End(); err != nil {
		t.Errorf("a session that goes on is none that was cut: %v", err)
	}
	r.Logs("continue without this process", "sessions=1")
	echoes(t, c, "without a process")
	off := start(t, strings.Replace(text, "lane: require", "lane: off", 1))
	off.Logs("no process manages them", pins)
	must(t, off.End())
	taken := sockets.Server(t, sockets.Echo)
	if _, err := server.Open(t.Context(), off.Load(strings.Replace(text, "127.0.0.1:0", taken, 1)), server.Options{MaxConnections: 10}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Error(err)
	}
	_ = c.SetDeadline(time.Now().Add(condition.Patience)) // to start may have taken as long
	echoes(t, c, "after a process that could not start")
	next := start(t, text)
	_ = c.SetDeadline(time.Now().Add(condition.Patience))
	echoes(t, c, "adopted")
	if st := next.Status().Lane; st.Adopted != 1 {
		t.Errorf("%+v", st)
	}
}

// TestLaneOffBeforeItIsOpen: while another process has the lane it can be switched off, and is off once it is there.
func TestLaneOffBeforeItIsOpen(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	other, err := lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 1})
	must(t, err)
	defer other.Close()
	r := start(t, laneConfig(sockets.Server(t, sockets.Echo), "lane: auto"))
	r.Until("the lane is busy", func() bool { return r.Status().Lane.State == admin.LaneBusy })
	for _, ask := range []func(string) (admin.LaneChanged, error){
		func(by string) (admin.LaneChanged, error) { return r.SwitchLane(false, by) }, r.ReturnLane,
	} {
		if changed, err := ask("test"); err != nil || changed.State != admin.LaneOff {
			t.Errorf("%+v, %v", changed, err)
		}
	}
	must(t, other.Close())
	r.Until("the lane is there, and off", func() bool { return r.Status().Lane.State == admin.LaneOff })
	c := client(t, r.At("l"))
	if changed, err := r.SwitchLane(true, "test"); err != nil || changed.State != admin.LaneOn {
		t.Errorf("%+v, %v", changed, err)
	}
	r.leaves(t, c)
}

// TestLaneReloadWhileBusy: a reload while an earlier process has the lane keeps the sessions that this process leaves behind, though
// two attempts to open the lane are under way then.
func TestLaneReloadWhileBusy(t *testing.T) {
	t.Parallel()

	pins := pinned(t)
	if pins == "" {
		return
	}
	endpoint := sockets.Server(t, sockets.Echo)
	first := start(t, pinnedConfig(endpoint, "lane: require", "leave: true, pins: "+pins))
	c := client(t, first.At("l"))
	first.leaves(t, c)
	next := start(t, pinnedConfig(endpoint, "lane: auto", "pins: "+pins))
	next.Until("the lane is busy", func() bool { return next.Status().Lane.State == admin.LaneBusy })
	next.Reload(pinnedConfig(endpoint, "lane: auto, limits: {connections: 5}", "pins: "+pins))
	must(t, first.End())
	next.Until("the lane is there", func() bool { return next.Status().Lane.State == admin.LaneOn })
	if st := next.Status().Lane; st.Adopted != 1 || st.Reset != 0 {
		t.Errorf("%+v", st)
	}
	echoes(t, c, "adopted")
}

// TestLaneRestart: the first configuration that wants the lane opens it with the keys that it has. From then on a change of them takes a
// restart, and the status says so until the file is as it was, which a plan says of no key that would be so; lane.default is of the listeners.
func TestLaneRestart(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	endpoint := sockets.Server(t, sockets.Echo)
	with := func(keys, listener string) string {
		return strings.Replace(laneConfig(endpoint, listener), "sessions: 64, ", keys, 1)
	}
	r := start(t, strings.Replace(with("sessions: 64, ", "lane: auto"), "[lo]", "[nowhere]", 1))
	r.Until("it could not be opened", func() bool { return r.Status().Lane.State == admin.LaneUnavailable })
	if got := r.Awaiting(r.Load(with("sessions: 128, ", "lane: off"))); got != nil {
		t.Errorf("without a lane %q would wait for a restart", got)
	}
	r.Reload(with("sessions: 128, ", "lane: off"))
	if got := r.Status().Restart; got != nil {
		t.Errorf("without a lane: %q", got)
	}
	r.Reload(with("sessions: 256, ", "lane: require"))
	if s := r.Status(); s.Restart != nil || s.Lane.State != admin.LaneOn || s.Lane.Most != 256 {
		t.Errorf("%q, %+v", s.Restart, s.Lane)
	}
	r.Reload(with("sessions: 512, leave: false, default: auto, ", "lane: require"))
	if s, want := r.Status(), []string{"lane.sessions: 256 → 512"}; !slices.Equal(s.Restart, want) || s.Lane.Most != 256 {
		t.Errorf("%q, want %q; %+v", s.Restart, want, s.Lane)
	}
	awaits := func(text string, want ...string) {
		t.Helper()
		if got := r.Awaiting(r.Load(text)); !slices.Equal(got, want) {
			t.Errorf("%q would wait for a restart, want %q", got, want)
		}
	}
	awaits(with("sessions: 512, ", "lane: require"), "lane.sessions") // as it is
	awaits(with("sessions: 256, ", "lane: require"))                  // as it is in force
	awaits(with("sessions: 128, pins: /p, ", "lane: require"), "lane.sessions", "lane.pins")
	awaits(with("sessions: 256, ", "lane: off")+"\nlimits: {memory: {mlock: true}}", "limits.memory.mlock")
	r.Logs("take effect only after a restart", "lane.sessions: 256 → 512")
	r.Reload(with("sessions: 256, default: auto, ", "lane: off"))
	if got := r.Status().Restart; got != nil {
		t.Errorf("as it was: %q", got)
	}
}
