package lane_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/lane/internal/program"
)

// asStepper is the environment variable that makes a process open the lane, and close it or leave it as a crash does: after which of the steps of pinning and unpinning it is
// killed, whether it closes the lane, and the directory of its pins.
const asStepper = "PENSTOCK_TEST_LANE_STEPS"

// stepper is such a process, if this one was started for that. It is killed, or exits with 0 if it has come to its end.
func stepper() {
	what, ok := os.LookupEnv(asStepper)
	if !ok {
		return
	}
	var last, n int
	var closes bool
	var pin string
	_, err := fmt.Sscan(what, &last, &closes, &pin)
	program.Step = func() {
		if n++; n == last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	var l *lane.Lane
	if err == nil {
		l, err = lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 16, Pin: pin})
	}
	if err == nil && closes {
		err = l.Close()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// steps runs a process that is killed after a step, and reports whether it was.
func steps(t *testing.T, last int, closes bool, pin string) (killed bool) {
	t.Helper()
	until(t, "no other lane is attached", func() bool { // that of the process before ends some time after it
		cmd := exec.Command(privilege.Self, "-test.run=^$")
		cmd.Env = append(os.Environ(), fmt.Sprint(asStepper, "=", last, " ", closes, " ", pin))
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		switch {
		case err == nil:
			killed = false
		case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled():
			killed = true
		case strings.Contains(string(out), lane.ErrBusy.Error()):
			return false
		default:
			t.Fatalf("%v: %s", err, out)
		}
		return true
	})
	return killed
}

// attached is how many programs are attached to the loopback.
func attached(t *testing.T) (n int) {
	t.Helper()
	for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		all, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: at})
		if err != nil {
			t.Fatal(err)
		}
		n += len(all.Programs)
	}
	return n
}

// TestDeathBetweenSteps: after a death between any two steps of pinning, attaching, unpinning and detaching, and another one between those of the process after it, the next
// process has a whole set of pins, one pair of programs, and sessions that leave user space; and nothing is left when it ends in order.
func TestDeathBetweenSteps(t *testing.T) {
	t.Parallel()

	if !aloneWithMounts(t) {
		return
	}
	dir := filesystem(t)
	n := 0
	for killed := true; killed; {
		n++
		killed = steps(t, n, true, dir)
		for again := range n%3/2 + 1 { // to load the programs takes its time
			if again > 0 {
				steps(t, n, true, dir)
				steps(t, 1+n/3, true, dir)
			}
			var l *lane.Lane
			until(t, "no other lane is attached", func() (opened bool) {
				var err error
				if l, err = lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir, Sessions: 16}); err != nil && !errors.Is(err, lane.ErrBusy) {
					t.Fatalf("after step %d and %d: %v", n, again, err)
				}
				return err == nil
			})
			if got, want := names(t, dir), wholePins(1); !slices.Equal(got, want) || attached(t) != 2 {
				t.Errorf("after step %d and %d %v is pinned, want %v, and %d programs are attached", n, again, got, want, attached(t))
			}
			joined(t, l, "tcp", "127.0.0.1:0").talk(t)
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if got := names(t, dir); len(got) > 0 || attached(t) != 0 {
				t.Errorf("after step %d and %d, and Close, %v is pinned, and %d programs are attached", n, again, got, attached(t))
			}
		}
	}
	if least := 3 + 4 + 5; n <= least {
		t.Errorf("%d steps, want more than %d: three maps, two programs that are attached and pinned, and all pins", n, least)
	}
}

// TestDeathBetweenStepsOfAdoption: a death while a process takes over pinned programs costs no session.
func TestDeathBetweenStepsOfAdoption(t *testing.T) {
	t.Parallel()

	if !aloneWithMounts(t) {
		return
	}
	dir := filesystem(t)
	p := startProxy(t, sockets.Server(t, sockets.Echo), dir)
	clients := p.talkers(t, 2)
	p.kill()
	n := 0
	for killed := true; killed; {
		n++
		killed = steps(t, n, false, dir)
		renewed(clients)
		for _, c := range clients {
			echo(t, c, "without a process")
		}
	}
	if n != 3 {
		t.Errorf("the last of %d runs was killed after no step, want that of 3", n)
	}
	l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if st := l.Stats(); st.Adopted != uint64(len(clients)) || attached(t) != 2 {
		t.Errorf("%+v, and %d programs are attached", st, attached(t))
	}
	renewed([]*net.TCPConn(clients))
	for _, c := range clients {
		echo(t, c, "adopted")
	}
}
