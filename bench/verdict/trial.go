package verdict

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/proxy/admin"
)

// A Trial is a fault and the verdicts on it.
type Trial struct {
	Fault
	Want string `json:"want"`
	// End is the verdict on a session that lived with the fault from its beginning, Live that on the last second
	// of it while it ran; with the figures that carry them.
	End     string            `json:"end"`
	EndWhy  string            `json:"end_why"`
	Live    string            `json:"live"`
	LiveWhy string            `json:"live_why"`
	Session *admin.SessionWhy `json:"session,omitempty"` // of Live
	// Sought says that there was a second session, with the fault only after a second.
	Sought bool `json:"sought"`
	// Detected is the seconds from the fault, in a session that had none before, to the first right live verdict;
	// negative: not within the time of the trial.
	Detected float64 `json:"detected_seconds"`
	// Health says that a health check, or ErrorRate that the rate of failed connections, would have noticed.
	Health    bool `json:"health_check"`
	ErrorRate bool `json:"error_rate"`
}

// Setup is the circumstances of a trial.
type Setup struct {
	Run    Runner
	Time   time.Duration // of a session with the fault
	Window time.Duration // of a live verdict
	Detect bool          // a second session, which has the fault only after a while
}

// run makes a fault in a network of its own.
func (s *Setup) run(ctx context.Context, f Fault) (t Trial, err error) {
	t = Trial{Fault: f, Want: f.Want(), Detected: -1}
	dir, err := os.MkdirTemp("", "penstock-verdict-")
	if err != nil {
		return t, err
	}
	defer os.RemoveAll(dir)
	n, err := newNetwork()
	if err != nil {
		return t, err
	}
	defer n.close()
	if f.Reno {
		if err := n.reno(); err != nil {
			return t, err
		}
	}
	sc := &scene{setup: s, net: n, pair: pair{fault: &t.Fault}}
	if f.RTT > 0 {
		way, err := lengthen(sc.router(), milliseconds(f.RTT/2), milliseconds(f.Jitter/2))
		if err != nil {
			return t, err
		}
		defer way.close()
	}
	if err := sc.open(ctx, dir); err != nil {
		return t, err
	}
	defer sc.close()
	if s.Detect {
		if err := sc.detect(ctx, &t); err != nil {
			return t, err
		}
	}
	return t, sc.judge(ctx, &t)
}

// A scene is the stage of a trial.
type scene struct {
	setup    *Setup
	net      *network
	pair     pair
	listener net.Listener
	balancer *balancer
	serving  sync.WaitGroup
	undo     []func()
}

func (sc *scene) open(ctx context.Context, dir string) (err error) {
	f := sc.pair.fault
	if sc.listener, err = sc.net.listen(sc.buffer(false)); err != nil {
		return err
	}
	sc.serving.Go(sc.accept)
	keys, more := "", ""
	if f.Lane {
		keys, more = ", lane: require", fmt.Sprintf("lane: {devices: [%s, %s], sessions: 64, after: 20ms}\n", deviceTo(nearClientRouter), deviceTo(nearEndpointRouter))
	}
	if f.Cause == Bandwidth {
		keys = fmt.Sprintf(", limits: {bandwidth_per_connection: %dB/s}", int64(f.Strength*1e6))
	}
	if sc.balancer, err = startBalancer(ctx, sc.net, sc.setup.Run, dir, sc.listener.Addr(), keys, more); err != nil {
		sc.listener.Close()
		sc.serving.Wait()
	}
	return err
}

// buffer is the receive buffer of a side.
func (sc *scene) buffer(client bool) int {
	if f := sc.pair.fault; (f.Cause == Window || f.Cause == LongWindow) && f.Client == client {
		return int(f.Strength * 1024)
	}
	return 0
}

func (sc *scene) accept() {
	for {
		c, err := sc.listener.Accept()
		if err != nil {
			return
		}
		sc.serving.Go(func() { sc.pair.serve(c) })
	}
}

func (sc *scene) close() {
	sc.mend()
	sc.balancer.close() // which ends the connections
	sc.listener.Close()
	sc.serving.Wait()
}

// mend takes the fault back.
func (sc *scene) mend() {
	for _, f := range sc.undo {
		f()
	}
	sc.undo = nil
	sc.pair.healthy()
}

// router is the one on the way to the fault's side.
func (sc *scene) router() *process.Group {
	if sc.pair.fault.Client {
		return sc.net.clientRouter
	}
	return sc.net.endpointRouter
}

// make makes the fault.
func (sc *scene) make() error {
	f := sc.pair.fault
	sc.pair.slow()
	router := sc.router()
	device := "inner" // where the bulk of the bytes leaves the router
	if f.Client != f.Upload {
		device = "outer"
	}
	switch f.Cause {
	case Loss, LongLoss:
		rule := fmt.Sprintf("nft add rule inet verdict out oifname %s meta l4proto tcp numgen random mod 10000 < %d drop", device, int(f.Strength*100))
		if err := router.Run("nft add table inet verdict", "nft add chain inet verdict out { type filter hook forward priority 0 ; }", rule); err != nil {
			return err
		}
		sc.undo = append(sc.undo, func() { _ = router.Run("nft delete table inet verdict") })
	case ThinLink:
		if err := router.Run(fmt.Sprintf("tc qdisc add dev %s root tbf rate %dkbit burst 10000 limit %d", device, int(f.Strength*1000), f.Chunk)); err != nil {
			return err
		}
		sc.undo = append(sc.undo, func() { _ = router.Run("tc qdisc del dev " + device + " root") })
	case Starved:
		undo, err := sc.balancer.starve(f.Strength / 100)
		if err != nil {
			return err
		}
		sc.undo = append(sc.undo, undo)
	}
	return nil
}

// judge looks at a session that lives with the fault: from its beginning, or since it has left user space.
func (sc *scene) judge(ctx context.Context, t *Trial) error {
	sc.pair.healthy()
	if !t.Lane {
		if err := sc.make(); err != nil {
			return err
		}
	}
	defer sc.mend()
	end, err := sc.session(ctx)
	if err != nil {
		return err
	}
	defer end()
	if t.Lane {
		if err := sc.make(); err != nil {
			return err
		}
	}
	if err := wait(ctx, sc.setup.Time-sc.setup.Window); err != nil {
		return err
	}
	if t.Live, t.Session, err = sc.live(ctx); err != nil {
		return err
	}
	if t.Session != nil {
		t.LiveWhy = t.Session.Why
	}
	end()
	select {
	case r := <-sc.balancer.ended:
		t.End, t.EndWhy = r.Verdict, r.Why
	case <-time.After(patience):
		return fmt.Errorf("%v: the session does not end", t.Fault)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// session begins a session, and returns its end, which may be called twice.
func (sc *scene) session(ctx context.Context) (end func(), err error) {
	c, err := sc.net.dial(sc.balancer.at, sc.buffer(true))
	if err != nil {
		return nil, err
	}
	if sc.pair.fault.Lane {
		if err := sc.leave(ctx, c); err != nil {
			c.Close()
			return nil, err
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		sc.pair.use(c)
	}()
	return func() {
		if !sc.pair.fault.Requests { // or queued bytes would be waited for
			_ = c.(*net.TCPConn).SetLinger(0)
		}
		c.Close()
		<-done
	}, nil
}

// leave waits until a session has left user space.
func (sc *scene) leave(ctx context.Context, c net.Conn) error {
	var failed error
	deadline := time.Now().Add(patience)
	err := sc.pair.opening(c, func() bool {
		all, err := sc.balancer.admin.Sessions(ctx, admin.SessionQuery{}, admin.SessionOrder{})
		switch {
		case err == nil && len(all.Sessions) == 1 && all.Sessions[0].Engine == "lane":
			return true
		case time.Now().After(deadline):
			failed = fmt.Errorf("%v: the session does not leave user space: %+v", sc.pair.fault, all.Sessions)
		case err != nil:
			failed = err
		}
		return failed != nil
	})
	return errors.Join(err, failed)
}

// live returns the verdict on the session that there is.
func (sc *scene) live(ctx context.Context) (string, *admin.SessionWhy, error) {
	w, err := sc.balancer.admin.Why(ctx, admin.WhyQuery{For: sc.setup.Window})
	if err != nil || len(w.Sessions) == 0 {
		return "", nil, err
	}
	return w.Sessions[0].Verdict, &w.Sessions[0], nil
}

// detect measures the time from a fault to the right verdict.
func (sc *scene) detect(ctx context.Context, t *Trial) error {
	t.Sought = true
	sc.pair.healthy()
	end, err := sc.session(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := wait(ctx, time.Second); err != nil {
		return err
	}
	began := time.Now()
	if err := sc.make(); err != nil {
		return err
	}
	defer sc.mend()
	for time.Since(began) < 2*sc.setup.Time {
		v, _, err := sc.live(ctx)
		if err != nil {
			return err
		}
		if v == t.Want {
			t.Detected = time.Since(began).Seconds()
			break
		}
	}
	_ = wait(ctx, 2*sc.setup.Time-time.Since(began)) // for the checks
	st, err := sc.balancer.admin.Status(ctx)
	if err != nil {
		return err
	}
	t.Health = len(sc.balancer.health) > 0
	t.ErrorRate = failures(&st) > 0
	end()
	<-sc.balancer.ended
	return nil
}

// failures counts clients that were refused, and sessions that ended without an answer.
func failures(st *admin.Status) (n int64) {
	n = st.Connections.Refused
	for i := range st.Upstreams {
		for j := range st.Upstreams[i].Endpoints {
			n += st.Upstreams[i].Endpoints[j].Failures
		}
	}
	return n
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
