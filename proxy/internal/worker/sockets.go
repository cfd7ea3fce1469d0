package worker

import (
	"maps"
	"time"
	"unsafe"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/sockopt"
)

// Options that matter only to lasting connections are set when a session is between one and two periods old. A short
// session costs only a place in one of two lists, one for this period and one for the previous period. If its conn has
// another client by then, this client gets its options early.
const lateSockoptsAfter = time.Second

// batch is the number of sessions whose options are set in one turn of the loop.
const batch = 256

// A lateSockopts holds the sessions that set the same options on their endpoints' sockets.
type lateSockopts struct {
	worker        *worker
	options       sockopt.Options
	recent, older []*conn // sessions without the options
	done          int     // number of sessions in older that have them by now
	timer         loop.Timer
}

// lateSockoptsOf returns the lateSockopts of some options, which all sessions with equal options share.
func (w *worker) lateSockoptsOf(options sockopt.Options) *lateSockopts {
	g := w.lateOptions[options]
	if g == nil {
		g = &lateSockopts{worker: w, options: options}
		w.lateOptions[options] = g
	}
	return g
}

func (g *lateSockopts) apply(n *conn) {
	g.recent = append(g.recent, n)
	if !g.timer.Armed() {
		g.worker.loop.Arm(&g.timer, g, lateSockoptsAfter)
	}
}

func (g *lateSockopts) Expired(*loop.Timer) {
	for range batch {
		if g.done == len(g.older) {
			break
		}
		n := g.older[g.done]
		g.done++
		if n.state == joined && n.tcp() && n.ref.serving.lateSockopts == g && !n.carried() {
			_, b := n.descriptors()
			_ = g.options.Last(b) // without these options the connection works too
		}
	}
	if g.done < len(g.older) {
		g.worker.loop.Arm(&g.timer, g, 0)
		return
	}
	g.older, g.recent, g.done = g.recent, g.older[:0], 0
	if cap(g.recent) > 2*len(g.older) {
		g.recent = nil // more sessions began once than now
	}
	if len(g.older) > 0 {
		g.worker.loop.Arm(&g.timer, g, lateSockoptsAfter)
	}
}

// windows keep TCP_USER_TIMEOUT from ending a session with a peer that lives but does not read. The kernel counts the
// time in which a window is closed although the peer answers each probe (net/ipv4/tcp_timer.c, tcp_probe_timer),
// whereas RFC 1122, 4.2.2.17 keeps the connection open for as long as the peer answers. So the option is removed from a
// socket while its peer's window is closed. It is set again once the window is open, or once the probes have got no
// answer for as long as the timeout: then the kernel ends the session when it is about to send the next probe.
//
// A pass over all clients comes four times in the shortest timeout of the loop. It asks the kernel only about sessions that
// have moved bytes since the last pass, or had bytes on the way then.
type windows struct {
	worker *worker
	timer  loop.Timer
	every  time.Duration // the period for which the timer is armed
	passes bool          // a pass is under way
	began  int64         // loop clock of the beginning of this pass, and of the last one
	before int64
	bound  bool // this pass has met a session with a timeout
	shut   map[windowOf]*shutWindow
	round  uint32
}

type windowOf struct {
	of *conn
	b  bool
}

// A shutWindow is a peer's window that was closed at the last pass.
type shutWindow struct {
	asked int64 // loop clock of the first pass that found a probe without an answer; 0: all are answered
	round uint32
}

const (
	windowLooks  = 4 // passes in a timeout
	leastWindows = 50 * time.Millisecond
	// leastAnswer is how long a probe must go unanswered at least: an endpoint answers one in half a second
	// (net/ipv4/tcp_input.c, tcp_oow_rate_limited), and the second probe comes within that time.
	leastAnswer = 2 * time.Second
)

func (t *windows) begin(n *conn) {
	if userTimeoutOf(n) <= 0 {
		return
	}
	t.bound = true
	if p := t.period(); !t.timer.Armed() || p < t.every { // the first session with a timeout, or a shorter one than before
		t.arm(p)
	}
}

func (t *windows) arm(p time.Duration) {
	t.every = p
	t.worker.loop.Arm(&t.timer, t, p)
}

func (t *windows) period() time.Duration {
	least := time.Duration(0)
	for options := range t.worker.lateOptions {
		if d := options.SetUserTimeout(); d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return max(least/windowLooks, leastWindows)
}

// Expired implements [loop.Expirer]: it begins a pass, if the last one is over.
func (t *windows) Expired(*loop.Timer) {
	if t.arm(t.period()); t.passes {
		return
	}
	t.passes, t.bound = true, false
	t.before, t.began = t.began, t.worker.loop.Now()
	t.round++
	t.worker.scanClients(func(_ *worker, n *conn) {
		if n.state == joined && !n.carried() {
			t.look(n)
		}
		t.bound = t.bound || n.state == joined && userTimeoutOf(n) > 0
	}, func(time.Duration) {
		t.passes = false
		maps.DeleteFunc(t.shut, func(_ windowOf, s *shutWindow) bool { return s.round != t.round })
		if !t.bound {
			t.worker.loop.Disarm(&t.timer)
		}
	})
}

// look looks at both sockets of a session in user space.
func (t *windows) look(n *conn) {
	timeout := userTimeoutOf(n)
	if timeout <= 0 || !n.is(unsent) && n.idle() > time.Duration(t.began-t.before) {
		return
	}
	a, b := n.descriptors()
	left := n.ref.serving.socket.TCP && t.lookAt(windowOf{n, false}, a, timeout)
	if n.tcp() && t.lookAt(windowOf{n, true}, b, timeout) {
		left = true
	}
	n.set(unsent, left)
}

// lookAt reports whether bytes are on the way to a peer, or wait for its window.
func (t *windows) lookAt(of windowOf, fd int, timeout time.Duration) bool {
	s, known := t.shut[of]
	queued, err := sys.SIOCOUTQ(fd)
	if err != nil {
		return false
	}
	var info sys.TCPInfo
	if queued > 0 {
		filled, err := sys.ReadTCPInfo(fd, &info)
		if shut := err == nil && closedWindow(&info, filled); shut {
			t.keepOpen(of, fd, timeout, &info)
			return true
		}
	}
	if known && s.round != 0 {
		s.round = 0
		setUserTimeout(fd, timeout)
	}
	return queued > 0
}

// closedWindow reports whether the queued bytes of a socket wait for the peer's window: nothing is
// in flight, or the peer has shrunk its window to 0.
func closedWindow(i *sys.TCPInfo, filled int) bool {
	return i.Unacked == 0 || filled >= int(unsafe.Offsetof(i.Snd_wnd)+unsafe.Sizeof(i.Snd_wnd)) && i.Snd_wnd == 0
}

// keepOpen keeps a socket from timing out while its peer's window is closed.
func (t *windows) keepOpen(of windowOf, fd int, timeout time.Duration, i *sys.TCPInfo) {
	s := t.shut[of]
	if s == nil {
		s = new(shutWindow)
		t.shut[of] = s
	}
	s.round = t.round
	answered := t.began - int64(i.Last_ack_recv)*int64(time.Millisecond)
	// If a window closes on bytes that are on the way, the probes are these bytes, sent again.
	switch unanswered := i.Probes > 0 || i.Retransmits > 0 && i.Last_data_sent < i.Last_ack_recv; {
	case !unanswered:
		s.asked = 0
	case s.asked == 0, answered > s.asked:
		s.asked = t.began
	case t.began-s.asked >= int64(max(timeout, leastAnswer)):
		setUserTimeout(fd, timeout)
		return
	}
	setUserTimeout(fd, 0)
}

// setUserTimeout sets TCP_USER_TIMEOUT; 0: the kernel's default. If it fails, the socket has failed, and needs none.
func setUserTimeout(fd int, d time.Duration) {
	_ = sys.SetsockoptInt(fd, sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT, int(d/time.Millisecond))
}
