//go:build linux

// Package verdict_test makes causes of slow sessions for real, and compares the verdicts of the load balancer: each
// client, proxy and endpoint in a network namespace of its own.
package verdict_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/admin"
)

func TestMain(m *testing.M) {
	flag.Parse()
	leak.Main(m)
}

// The flags of TestRandomFaults, by which the figures of README.md are drawn again.
var (
	faults  = flag.Int("faults", 0, "draw this `number` of faults, of each cause in turn; 0: one of each cause, where everything runs")
	seed    = flag.Uint64("seed", 1, "the seed of the draw")
	some    = flag.String("causes", "", "the causes, with commas; all if there are none")
	lasting = flag.Duration("session", 4*time.Second, "how long a session lives with its fault")
	detect  = flag.Int("detect", 0, "of every so many faults of a cause one is made in a running session, too; 0: none")
	laned   = flag.Int("laned", 3, "of every so many faults of a cause one is in a session that has left user space, where that can be; 0: none")
)

func program(t testing.TB) string {
	t.Helper()
	return filepath.Join(software.Build(t, "github.com/penstock/penstock/proxy/cmd/penstock"), "penstock")
}

// TestVerdicts: strong faults, one of each kind, get the right verdict at the session's end and live. Other work on the
// machine is a fault of its own, so each has ten attempts.
func TestVerdicts(t *testing.T) {
	full.Only(t, "a minute of a program in networks with faults, judged by its use of time")
	s := &setup{program: program(t), time: 2500 * time.Millisecond, window: time.Second}
	for _, f := range []fault{
		{Cause: SlowReader, Client: true, Strength: 1, Unit: "MB/s", Chunk: 64 << 10},
		{Cause: SlowSender, Strength: 150, Unit: "ms", Chunk: 16 << 10},
		{Cause: SlowAnswer, Requests: true, Strength: 150, Unit: "ms", Chunk: 1000},
		{Cause: Window, Upload: true, Strength: 3, Unit: "KB", Chunk: 64 << 10},
		{Cause: Loss, Client: true, Strength: 8, Unit: "%", Chunk: 256 << 10, Reno: true},
		{Cause: ThinLink, Client: true, Strength: 4, Unit: "Mbit/s", Chunk: 128 << 10, Reno: true},
		{Cause: ThinLink, Strength: 4, Unit: "Mbit/s", Chunk: 128 << 10, Reno: true},
		{Cause: Starved, Strength: 10, Unit: "% of a CPU", Chunk: 16 << 10},
		{Cause: Bandwidth, Strength: 0.5, Unit: "MB/s", Chunk: 64 << 10},
		{Cause: Idle, Requests: true, Strength: 5, Unit: "s", Chunk: 1000},
		{Cause: LongWay, Client: true, Requests: true, Strength: 80, Unit: "ms", Chunk: 1000, RTT: 80},
		{Cause: LongWindow, Client: true, Strength: 16, Unit: "KB", Chunk: 64 << 10, RTT: 80, Reno: true},
		{Cause: LongSender, Strength: 80, Unit: "ms", Chunk: 4 << 10, RTT: 80, Jitter: 4},
		{Cause: SlowReader, Client: true, Strength: 1, Unit: "MB/s", Chunk: 64 << 10, Lane: true},
		{Cause: SlowSender, Strength: 150, Unit: "ms", Chunk: 16 << 10, Lane: true},
		{Cause: SlowAnswer, Requests: true, Strength: 150, Unit: "ms", Chunk: 1000, Lane: true},
		{Cause: Loss, Client: true, Strength: 8, Unit: "%", Chunk: 256 << 10, Reno: true, Lane: true},
		{Cause: ThinLink, Strength: 4, Unit: "Mbit/s", Chunk: 128 << 10, Reno: true, Lane: true},
		{Cause: Idle, Requests: true, Strength: 5, Unit: "s", Chunk: 1000, Lane: true},
	} {
		t.Run(f.String(), func(t *testing.T) {
			var last trial
			var err error
			for range 10 {
				if last, err = s.run(t, f); errors.Is(err, os.ErrPermission) {
					t.Skip(err)
				}
				if err == nil && last.End == last.Want && last.Live == last.Want {
					return
				}
			}
			t.Errorf("at the end %s (%s), live %s (%s), want %s; %v", last.End, last.EndWhy, last.Live, last.LiveWhy, last.Want, err)
		})
	}
}

// TestRandomFaults: faults of random strength get the right verdict at the session's end and live: 92 % of all but one, and 80 % of each
// verdict if there are ten of it.
func TestRandomFaults(t *testing.T) {
	chosen := causes
	if *some != "" {
		chosen = nil
		for name := range strings.SplitSeq(*some, ",") {
			if !slices.Contains(causes, cause(name)) {
				t.Fatalf("no cause %q: write some of %q", name, causes)
			}
			chosen = append(chosen, cause(name))
		}
	}
	if *faults == 0 {
		full.Only(t, "minutes of a program in networks with faults")
		*faults = len(chosen)
	}
	newNetwork(t) // or it is skipped
	prefer(t)
	s := setup{program: program(t), time: *lasting, window: time.Second}
	r := rand.New(rand.NewPCG(*seed, 0))
	var trials []trial
	for i := range *faults {
		f := drawn(r, chosen[i%len(chosen)])
		round := i / len(chosen)
		f.Lane = *laned > 0 && f.Cause.inLane() && (round+i)%*laned == 0
		s.detect = *detect > 0 && round%*detect == 0
		t.Run(f.String(), func(t *testing.T) {
			one, err := s.run(t, f)
			for range 4 {
				if errors.Is(err, admin.ErrSilent) { // a starved program on a busy machine: that was no trial
					one, err = s.run(t, f)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			trials = append(trials, one)
			t.Logf("at the end %s (%s), live %s (%s), want %s", one.End, one.EndWhy, one.Live, one.LiveWhy, one.Want)
			if one.Sought {
				t.Logf("in a running session the right verdict came after %.1f s; a health check would have noticed: %v, the error rate: %v", one.Detected, one.Health, one.ErrorRate)
			}
		})
	}
	for _, lane := range []bool{false, true} {
		part := slices.DeleteFunc(slices.Clone(trials), func(t trial) bool { return t.Lane != lane })
		for name, of := range map[string]func(*trial) string{"end": func(t *trial) string { return t.End }, "live": func(t *trial) string { return t.Live }} {
			m := matrixOf(part, of)
			right, all := m.right("")
			t.Logf("in the lane %v, %s: %d of %d right: %v", lane, name, right, all, m)
			if float64(right)+1 < 0.92*float64(all) { // one may be bad luck: of ten it would be too many
				t.Errorf("in the lane %v, %s: %d of %d right", lane, name, right, all)
			}
			for want := range m {
				if right, all := m.right(want); all >= 10 && float64(right) < 0.8*float64(all) {
					t.Errorf("in the lane %v, %s: %d of %d right that are %s", lane, name, right, all, want)
				}
			}
		}
	}
}

// prefer raises the priority of this process, and of its session's among other sessions', where these share the CPUs evenly
// (sched(7), autogroup), so that other work is no fault.
func prefer(t *testing.T) {
	t.Helper()
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, os.Getpid(), nice); err != nil {
		t.Skipf("raise the priority of this process: %v", err)
	}
	const file = "/proc/self/autogroup"
	if os.WriteFile(file, []byte("-15"), 0o644) == nil { // or this kernel has none
		t.Cleanup(func() { _ = os.WriteFile(file, []byte("0"), 0o644) })
	}
}

// A trial is a fault and the verdicts on it.
type trial struct {
	fault
	Want string
	// End is the verdict on a session that lived with the fault from its beginning, Live that on the last second
	// of it while it ran; with the figures that carry them.
	End     string
	EndWhy  string
	Live    string
	LiveWhy string
	Session *admin.SessionWhy // of Live
	// Sought says that there was a second session, with the fault only after a second.
	Sought bool
	// Detected is the seconds from the fault, in a session that had none before, to the first right live verdict;
	// negative: not within the time of the trial.
	Detected float64
	// Health says that a health check, or ErrorRate that the rate of failed connections, would have noticed.
	Health    bool
	ErrorRate bool
}

// A setup is the circumstances of a trial.
type setup struct {
	program string
	time    time.Duration // of a session with the fault
	window  time.Duration // of a live verdict
	detect  bool          // a second session, which has the fault only after a while
}

func (s *setup) run(t testing.TB, f fault) (tr trial, err error) {
	tr = trial{fault: f, Want: f.want(), Detected: -1}
	n := newNetwork(t)
	if f.Reno {
		n.reno(t)
	}
	sc := &scene{t: t, setup: s, net: n, pair: pair{fault: &tr.fault}}
	if f.RTT > 0 {
		way, err := lengthen(sc.router(), milliseconds(f.RTT/2), milliseconds(f.Jitter/2))
		if err != nil {
			return tr, err
		}
		defer way.close()
	}
	if err := sc.open(); err != nil {
		return tr, err
	}
	defer sc.close()
	if s.detect {
		if err := sc.find(t.Context(), &tr); err != nil {
			return tr, err
		}
	}
	return tr, sc.judge(t.Context(), &tr)
}

// A scene is the stage of a trial.
type scene struct {
	t        testing.TB
	setup    *setup
	net      *network
	pair     pair
	listener net.Listener
	balancer *balancer
	serving  sync.WaitGroup
	undo     []func()
}

func (sc *scene) open() (err error) {
	f := sc.pair.fault
	if sc.listener, err = sc.net.listen(sc.buffer(false)); err != nil {
		return err
	}
	sc.serving.Go(sc.accept)
	keys, more := "", ""
	if f.Lane {
		keys, more = ", lane: require", fmt.Sprintf("lane: {devices: [%s, %s], sessions: 64, after: 20ms}\n", sc.net.devices[0], sc.net.devices[1])
	}
	if f.Cause == Bandwidth {
		keys = fmt.Sprintf(", limits: {bandwidth_per_connection: %dB/s}", int64(f.Strength*1e6))
	}
	if sc.balancer, err = startBalancer(sc.t, sc.net, sc.setup.program, sc.listener.Addr(), keys, more); err != nil {
		sc.listener.Close()
		sc.serving.Wait()
	}
	return err
}

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

func (sc *scene) mend() {
	for _, f := range sc.undo {
		f()
	}
	sc.undo = nil
	sc.pair.healthy()
}

func (sc *scene) router() *router {
	if sc.pair.fault.Client {
		return sc.net.clientRouter
	}
	return sc.net.endpointRouter
}

func (sc *scene) make() error {
	f := sc.pair.fault
	sc.pair.slow()
	router := sc.router()
	device := router.inner // where the bulk of the bytes leaves the router
	if f.Client != f.Upload {
		device = router.outer
	}
	switch f.Cause {
	case Loss, LongLoss:
		sc.undo = append(sc.undo, router.lose(device, f.Strength))
	case ThinLink:
		router.TC("qdisc add dev %s root tbf rate %dkbit burst 10000 limit %d", device, int(f.Strength*1000), f.Chunk)
		sc.undo = append(sc.undo, func() { router.TC("qdisc del dev %s root", device) })
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
func (sc *scene) judge(ctx context.Context, t *trial) error {
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
	if err := wait(ctx, sc.setup.time-sc.setup.window); err != nil {
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
	case <-time.After(condition.Patience):
		return fmt.Errorf("%v: the session does not end", &t.fault)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// session begins a session, and returns its end, which may be called twice.
func (sc *scene) session(ctx context.Context) (end func(), err error) {
	c, err := dial(sc.net.client, sc.balancer.at, sc.buffer(true))
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
	deadline := time.Now().Add(condition.Patience)
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

func (sc *scene) live(ctx context.Context) (string, *admin.SessionWhy, error) {
	w, err := sc.balancer.admin.Why(ctx, admin.WhyQuery{For: sc.setup.window})
	if err != nil || len(w.Sessions) == 0 {
		return "", nil, err
	}
	return w.Sessions[0].Verdict, &w.Sessions[0], nil
}

func (sc *scene) find(ctx context.Context, t *trial) error {
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
	for time.Since(began) < 2*sc.setup.time {
		v, _, err := sc.live(ctx)
		if err != nil {
			return err
		}
		if v == t.Want {
			t.Detected = time.Since(began).Seconds()
			break
		}
	}
	_ = wait(ctx, 2*sc.setup.time-time.Since(began)) // for the checks
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

// A balancer is `penstock run` under observation.
type balancer struct {
	cmd    *exec.Cmd
	log    *bufio.Scanner
	admin  *admin.Client
	at     string
	done   sync.WaitGroup
	ended  chan record // sessions
	health chan record // of endpoints
}

// A record is a line of its log.
type record struct {
	Time                              time.Time
	Msg, Address, Verdict, Why, State string
	Level                             string
}

// startBalancer starts it with further keys of its listener, and of the file, and waits until it listens.
func startBalancer(t testing.TB, n *network, program string, endpoint net.Addr, keys, more string) (*balancer, error) {
	dir := sockets.Dir(t)
	socket := "unix:" + filepath.Join(dir, "admin.sock")
	text := more + fmt.Sprintf("admin: {bind: %q}\nlisteners: [{name: front, bind: \"%s:0\", upstream: back%s}]\n"+
		"upstreams: [{name: back, health_check: {interval: 1s}, endpoints: [{name: e, address: %q}]}]\n", socket, n.nearClient, keys, endpoint)
	file := filepath.Join(dir, "penstock.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	b := &balancer{cmd: exec.Command(program, "run", "--config", file, "--log", "json", "--log-level", "debug"), ended: make(chan record, 16), health: make(chan record, 64)}
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr, err := b.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	b.log = bufio.NewScanner(stderr)
	n.proxy.Start(b.cmd)
	last := ""
	for b.at == "" {
		r, ok := b.next()
		if !ok {
			return nil, fmt.Errorf("the program ended; its last line is %q", last)
		}
		if last = b.log.Text(); r.Msg == "listening" {
			b.at = r.Address
		}
	}
	// Other work on this machine is no fault of the experiment.
	if err := syscall.Setpriority(syscall.PRIO_PGRP, b.cmd.Process.Pid, nice); err != nil {
		return nil, fmt.Errorf("raise the priority of the balancer: %w", err)
	}
	if b.admin, err = admin.NewClient(socket); err != nil {
		return nil, err
	}
	b.done.Go(b.watch)
	if !condition.Eventually(func() bool { // the address is printed before it answers
		_, err = b.admin.Status(t.Context())
		return err == nil
	}) {
		return nil, err
	}
	return b, nil
}

// next returns the next line of the log; false: it has ended.
func (b *balancer) next() (r record, ok bool) {
	if !b.log.Scan() {
		return r, false
	}
	_ = json.Unmarshal(b.log.Bytes(), &r) // a line that is none has no Msg
	return r, true
}

func (b *balancer) watch() {
	for {
		r, ok := b.next()
		if !ok {
			return
		}
		to := b.health
		if r.Msg == "session ended" {
			to = b.ended
		} else if r.Level != "WARN" {
			continue
		}
		select {
		case to <- r:
		default:
		}
	}
}

// nice is the priority of everything in the experiment.
const nice = -15

func (b *balancer) close() {
	_ = b.cmd.Process.Kill()
	b.done.Wait()
	_ = b.cmd.Wait()
}

// starve lets the process have a share of a CPU, in a control group that it returns the removal of.
func (b *balancer) starve(share float64) (undo func(), err error) {
	const period = 100_000 // µs
	quota := fmt.Sprint(int64(max(share*period, 1000)))
	dir, files := filepath.Join("/sys/fs/cgroup/cpu", groupName()), map[string]string{"cpu.cfs_period_us": fmt.Sprint(period), "cpu.cfs_quota_us": quota}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		dir, files = filepath.Join("/sys/fs/cgroup", groupName()), map[string]string{"cpu.max": quota + " " + fmt.Sprint(period)}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("take the CPU: %w", err)
	}
	undo = func() {
		// It goes back first: a group with a process in it cannot be removed.
		_ = os.WriteFile(filepath.Join(filepath.Dir(dir), "cgroup.procs"), fmt.Append(nil, b.cmd.Process.Pid), 0o644)
		for deadline := time.Now().Add(condition.Patience); os.Remove(dir) != nil && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
	}
	files["cgroup.procs"] = fmt.Sprint(b.cmd.Process.Pid)
	for _, name := range []string{"cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.max", "cgroup.procs"} {
		text, ok := files[name]
		if !ok {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			undo()
			return nil, fmt.Errorf("take the CPU: %w", err)
		}
	}
	return undo, nil
}

func groupName() string {
	return fmt.Sprintf("penstock-test-%d-%d", os.Getpid(), time.Now().UnixNano())
}

// A behavior is the part of one side. Its changes take effect at once.
type behavior struct {
	mu sync.Mutex
	pace
}

// A pace is how fast a side reads and writes.
type pace struct {
	readEvery  time.Duration // between reads
	readChunk  int
	writeEvery time.Duration // between writes, or before a question or an answer
	writeChunk int
}

func (b *behavior) set(p pace) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pace = p
}

func (b *behavior) now() pace {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pace
}

const wholeChunk = 256 << 10

// stream writes until an error.
func (b *behavior) stream(c net.Conn) {
	block := make([]byte, wholeChunk)
	for {
		p := b.now()
		if p.writeEvery > 0 {
			time.Sleep(p.writeEvery)
		}
		if _, err := c.Write(block[:min(max(p.writeChunk, 1), len(block))]); err != nil {
			return
		}
	}
}

// drain reads until an error.
func (b *behavior) drain(c net.Conn) {
	block := make([]byte, wholeChunk)
	for {
		p := b.now()
		if p.readEvery > 0 {
			time.Sleep(p.readEvery)
		}
		if _, err := c.Read(block[:min(max(p.readChunk, 1), len(block))]); err != nil {
			return
		}
	}
}

const question = 200 // bytes

// ask sends questions and reads answers of a size until an error.
func (b *behavior) ask(c net.Conn, answer int) {
	block := make([]byte, max(answer, question))
	for {
		if p := b.now(); p.writeEvery > 0 {
			time.Sleep(p.writeEvery)
		}
		if _, err := c.Write(block[:question]); err != nil {
			return
		}
		if _, err := io.ReadFull(c, block[:answer]); err != nil {
			return
		}
	}
}

// answer answers questions until an error.
func (b *behavior) answer(c net.Conn, answer int) {
	block := make([]byte, max(answer, question))
	for {
		if _, err := io.ReadFull(c, block[:question]); err != nil {
			return
		}
		if p := b.now(); p.writeEvery > 0 {
			time.Sleep(p.writeEvery)
		}
		if _, err := c.Write(block[:answer]); err != nil {
			return
		}
	}
}

// A pair is both sides of one session.
type pair struct {
	fault            *fault
	client, endpoint behavior
}

// healthy is the traffic without the fault.
func (p *pair) healthy() {
	whole := pace{readChunk: wholeChunk, writeChunk: wholeChunk / 4}
	p.client.set(whole)
	p.endpoint.set(whole)
}

// slow makes the fault, if it is one of a program.
func (p *pair) slow() {
	f, side := p.fault, &p.endpoint
	if f.Client {
		side = &p.client
	}
	now := side.now()
	switch f.Cause {
	case SlowReader, LongReader:
		now.readChunk = f.Chunk
		now.readEvery = time.Duration(float64(f.Chunk) / f.Strength / 1e6 * float64(time.Second))
	case SlowSender, LongSender:
		now.writeChunk, now.writeEvery = f.Chunk, f.period()
	case SlowAnswer, LongAnswer:
		now.writeEvery = f.period()
	case Idle:
		side = &p.client
		now = side.now()
		now.writeEvery = f.period()
	default:
		return
	}
	side.set(now)
}

// Bytes of the opening of a session that is to leave user space. They are answered: nothing is asked for after it.
const (
	ping = byte('p')
	goOn = byte('g')
)

// opening has both sides exchange a byte now and then until left says that the session has left user space.
func (p *pair) opening(c net.Conn, left func() bool) error {
	var answer [1]byte
	for !left() {
		if _, err := c.Write([]byte{ping}); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, answer[:]); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := c.Write([]byte{goOn}); err != nil {
		return err
	}
	_, err := io.ReadFull(c, answer[:])
	return err
}

func answerOpening(c net.Conn) error {
	for b := [1]byte{}; ; {
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return err
		}
		if _, err := c.Write(b[:]); err != nil || b[0] == goOn {
			return err
		}
	}
}

func (p *pair) serve(c net.Conn) {
	defer c.Close()
	if p.fault.Lane && answerOpening(c) != nil {
		return
	}
	switch {
	case p.fault.Requests:
		p.endpoint.answer(c, p.fault.Chunk)
	case p.fault.Upload:
		p.endpoint.drain(c)
	default:
		var first [1]byte
		if _, err := io.ReadFull(c, first[:]); err == nil {
			p.endpoint.stream(c)
		}
	}
}

func (p *pair) use(c net.Conn) {
	switch {
	case p.fault.Requests:
		p.client.ask(c, p.fault.Chunk)
	case p.fault.Upload:
		p.client.stream(c)
	default:
		if _, err := c.Write([]byte{1}); err == nil {
			p.client.drain(c)
		}
	}
}

// A matrix counts the verdicts given for each right one.
type matrix map[string]map[string]int

func matrixOf(trials []trial, of func(*trial) string) matrix {
	m := make(matrix)
	for i := range trials {
		t := &trials[i]
		if m[t.Want] == nil {
			m[t.Want] = make(map[string]int)
		}
		m[t.Want][cmp.Or(of(t), "none")]++
	}
	return m
}

// right returns how many of how many verdicts were right: of one kind, or of all if it is "".
func (m matrix) right(want string) (right, all int) {
	for kind, given := range m {
		if want != "" && kind != want {
			continue
		}
		for name, n := range given {
			if all += n; name == kind {
				right += n
			}
		}
	}
	return right, all
}
