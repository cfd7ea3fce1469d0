package hostile_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// childOf is set in the process with few descriptors, to the address of its endpoint.
const childOf = "PENSTOCK_TEST_HOSTILE_ENDPOINT"

// fewDescriptors is the process's RLIMIT_NOFILE. Its limit of connections is far above that.
const fewDescriptors = 200

// A report has the process's own counts when asked, and the number of its descriptors.
type report struct {
	Descriptors    int
	Active, Pauses int64
	Turns          int64
}

// TestChild is that process. It serves until its standard input ends, and answers each line there
// with a report.
func TestChild(t *testing.T) {
	endpoint := os.Getenv(childOf)
	if endpoint == "" {
		t.Skip("this is the child of TestNoDescriptors")
	}
	limit := syscall.Rlimit{Cur: fewDescriptors, Max: fewDescriptors}
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	r := start(t, fmt.Sprintf(looking, endpoint, "1s"))
	fmt.Printf("at %s %s\n", r.At("hello"), r.At("header"))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		s := r.Summary()
		said := report{Active: s.Connections.Active, Pauses: s.AcceptPauses, Turns: r.turns()}
		b, err := json.Marshal(said)
		must(t, err)
		fmt.Printf("report %s\n", b)
	}
}

// A child is the process with few descriptors.
type child struct {
	t             *testing.T
	pid           int
	in            io.WriteCloser
	out           *bufio.Scanner
	hello, header string
}

func startChild(t *testing.T) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(os.Environ(), childOf+"="+echo(t))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	c := &child{t: t, pid: cmd.Process.Pid, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		in.Close()
		timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		for c.out.Scan() {
			t.Log(c.out.Text())
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the child: %v", err)
		}
	})
	_, err = fmt.Sscan(c.line("at "), &c.hello, &c.header)
	must(t, err)
	return c
}

// line returns the rest of the next line with a prefix.
func (c *child) line(prefix string) string {
	c.t.Helper()
	for c.out.Scan() {
		if rest, ok := strings.CutPrefix(c.out.Text(), prefix); ok {
			return rest
		}
	}
	c.t.Fatalf("no line %q: %v", prefix, c.out.Err())
	return ""
}

func (c *child) report() (r report) {
	c.t.Helper()
	_, err := io.WriteString(c.in, "?\n")
	must(c.t, err)
	must(c.t, json.Unmarshal([]byte(c.line("report ")), &r))
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.pid)) // the child itself may have no descriptor left for this
	must(c.t, err)
	r.Descriptors = len(list)
	return r
}

// TestNoDescriptors: more clients connect than there are descriptors for, and send nothing. A
// served client is not affected, and new clients wait. The loops do not spin. After the flood all
// is as before.
func TestNoDescriptors(t *testing.T) {
	c := startChild(t)
	before := c.report()
	session := dial(t, c.header)
	_, err := session.Write(header1)
	must(t, err)
	must(t, exchange(session, []byte("before")))
	hello := helloOf(t, "a.test")
	for round := range 2 {
		began := c.report()
		start := time.Now()
		flood := crowd(t, 400, c.hello)
		for i, f := range flood {
			if i%2 == 0 { // these reach an endpoint, and need two descriptors
				_, _ = f.Write(hello)
			}
		}
		must(t, exchange(session, []byte("meanwhile")))
		honest := dial(t, c.header)
		_, err := honest.Write(header1)
		must(t, err)
		must(t, exchange(session, []byte("still")))
		time.Sleep(500 * time.Millisecond) // time for the loops to spin
		now := c.report()
		t.Logf("round %d: %+v, %d turns in %v", round, now, now.Turns-began.Turns, time.Since(start))
		if now.Descriptors < fewDescriptors*9/10 || now.Pauses == began.Pauses {
			t.Errorf("%+v: the limit was not reached", now)
		}
		if turns := now.Turns - began.Turns; turns > 20*400 {
			t.Errorf("%d turns for 400 clients", turns)
		}
		closeAll(flood)
		began2 := time.Now()
		must(t, exchange(honest, []byte("at last")))
		t.Logf("the honest client was served %v after that", time.Since(began2))
		honest.Close()
		must(t, exchange(session, []byte("after")))
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		now := c.report()
		if now.Active == 1 && now.Descriptors <= before.Descriptors+2+30 { // the session; spares, and idle pipes
			t.Logf("before %+v, after %+v", before, now)
			break
		}
		if time.Now().After(end) {
			t.Fatalf("before %+v, after %+v", before, now)
		}
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			c, err := net.Dial("tcp", c.hello)
			if err == nil {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				err = exchange(c, hello)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
