package verdict

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

func TestMain(m *testing.M) { leak.Main(m) }

// possible skips where networks cannot be made, and says why.
func possible(t *testing.T) {
	t.Helper()
	n, err := newNetwork()
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("makes network namespaces, which takes root: %v", err)
	}
	for _, tool := range []string{"ip", "tc", "nft"} {
		if _, missing := exec.LookPath(tool); missing != nil {
			t.Skipf("makes faults of a network with %s: %v", tool, missing)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	n.close()
}

// penstock builds the program.
func penstock(t testing.TB) Runner {
	t.Helper()
	dir := t.TempDir()
	if said, err := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "github.com/penstock/penstock/proxy/cmd/penstock").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	path := filepath.Join(dir, "penstock")
	return func(args ...string) process.Spec {
		return process.Spec{Name: "penstock run", Path: path, Args: append([]string{path, "run"}, args...)}
	}
}

// TestVerdicts: strong faults, one of each kind, get the right verdict at the session's end and live. Other work on the
// machine is a fault of its own, so each has ten attempts.
func TestVerdicts(t *testing.T) {
	full.Only(t, "a minute of a program in networks with faults, judged by its use of time")
	possible(t)
	s := &Setup{Run: penstock(t), Time: 2500 * time.Millisecond, Window: time.Second}
	for _, f := range []Fault{
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
			var last Trial
			var err error
			for range 10 {
				if last, err = s.run(t.Context(), f); errors.Is(err, os.ErrPermission) {
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

// TestPath: a connection over a long path takes a round trip, its bytes keep their order, and the path ends with the test.
func TestPath(t *testing.T) {
	possible(t)
	n, err := newNetwork()
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	const delay = 50 * time.Millisecond
	p, err := lengthen(n.endpointRouter, delay, delay/4)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENODEV) || errors.Is(err, os.ErrPermission) {
		t.Skip("no TUN devices here:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	l, err := n.listen(0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sent := make([]byte, 1<<20)
	for i := range sent {
		sent[i] = byte(i ^ i>>8 ^ i>>16)
	}
	var c net.Conn
	began := time.Now()
	if stop := n.proxy.Do(func() { c, err = net.DialTimeout("tcp", l.Addr().String(), patience) }); stop != nil || err != nil {
		t.Fatal(stop, err)
	}
	defer c.Close()
	if took := time.Since(began); took < 2*delay {
		t.Errorf("a handshake took %v over a path of %v each way", took, delay)
	}
	serving, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer serving.Close()
		_, _ = serving.Write(sent)
	}()
	// For as long as bytes come: a kernel that has no memory for TCP, for whatever other programs have of it, drops
	// packets, and the sender waits longer from one to the next.
	if got, err := io.ReadAll(sockets.Moving{TCPConn: c.(*net.TCPConn)}); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes of %d came, %v; %d packets under way\nreceiver: %s\nsender: %s", len(got), len(sent), err, len(p.queue),
			sockets.Account(c.(*net.TCPConn)), sockets.Account(serving.(*net.TCPConn)))
	}
	if refused := p.refused.Load(); refused > 0 {
		t.Errorf("the device has refused %d packets", refused)
	}
	if dropped := p.dropped.Load(); dropped > 0 {
		t.Errorf("%d packets had no room", dropped)
	}
}

// TestDraw: the same seed draws the same faults, and each has a right verdict.
func TestDraw(t *testing.T) {
	draw := func() (all []Fault) {
		r := rand.New(rand.NewPCG(7, 0))
		for _, c := range Causes {
			all = append(all, Draw(r, c))
		}
		return all
	}
	first, second := draw(), draw()
	for i, f := range first {
		if f != second[i] || f.Want() == "" || f.Strength <= 0 || f.Chunk <= 0 || f.Unit == "" {
			t.Errorf("%+v and %+v", f, second[i])
		}
	}
}

// TestMatrix: rows are the right verdicts, and one that is missing is none.
func TestMatrix(t *testing.T) {
	r := Report{Trials: []Trial{
		{Want: "client", End: "client"},
		{Fault: Fault{Lane: true}, Want: "client", End: "proxy"},
		{Fault: Fault{Cause: Idle}, Want: "idle", End: "", Sought: true, Detected: 2, Health: true},
		{Fault: Fault{Cause: Idle}, Want: "idle", End: "idle", Sought: true, Detected: -1},
	}}
	if here, there := len(r.Part(false).Trials), len(r.Part(true).Trials); here != len(r.Trials)-1 || there != 1 {
		t.Errorf("%d in user space and %d in the lane", here, there)
	}
	m := r.Matrix(func(t *Trial) string { return t.End })
	if right, all := m.Right(""); right != 2 || all != 4 {
		t.Errorf("%d of %d", right, all)
	}
	if right, all := m.Right("client"); right != 1 || all != 2 || m["client"]["proxy"] != 1 || m["idle"]["none"] != 1 {
		t.Errorf("%v", m)
	}
	d := r.Delays()
	if len(d) != 1 || d[0].Faults != 2 || d[0].Found != 1 || d[0].Median != 2 || d[0].HealthCheck != 1 || d[0].ErrorRate != 0 {
		t.Errorf("%+v", d)
	}
}
