package process_test

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/process"
)

func TestAChildCountsWithItsWorkers(t *testing.T) {
	c := ready(t, "master")
	pids, err := c.Pids()
	if err != nil || len(pids) != 3 || !slices.Contains(pids, c.Pid()) {
		t.Fatalf("processes %v, %v, want %d and two more", pids, err, c.Pid())
	}
	u, err := c.Usage()
	if err != nil || u.CPU < 2*burned || u.CPU > 10*burned || u.Switches < 3 {
		t.Errorf("usage %+v, %v, want 2 times %v", u, err, burned)
	}
	m, err := c.Memory()
	if err != nil || m.RssAnon < 2*heldBytes || m.RssAnon > 20*heldBytes || m.Descriptors < 3*3 || m.Descriptors > 3*20 {
		t.Errorf("memory %+v, %v, want 2 times %d bytes", m, err, heldBytes)
	}
}

func TestAProcessThatHasBeenWaitedForCounts(t *testing.T) {
	c := ready(t, "waiter")
	if pids, err := c.Pids(); err != nil || len(pids) != 1 {
		t.Fatalf("processes %v, %v", pids, err)
	}
	// The time of processes that were waited for is counted in ticks of 10 ms.
	if u, err := c.Usage(); err != nil || u.CPU < burned-20*time.Millisecond {
		t.Errorf("usage %+v, %v, want %v", u, err, burned)
	}
}

// TestWorkersEndWithTheirMaster: that holds whether this process or another one kills it.
func TestWorkersEndWithTheirMaster(t *testing.T) {
	for name, end := range map[string]func(*process.Child){
		"killed here": (*process.Child).Kill,
		"killed elsewhere": func(c *process.Child) {
			if err := c.Signal(os.Kill); err != nil {
				t.Error(err)
			}
			<-c.Done()
		},
		"ended": func(c *process.Child) {
			if err := c.Stop(syscall.Signal(0), forever); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := ready(t, "master")
			pids, err := c.Pids()
			if err != nil {
				t.Fatal(err)
			}
			end(c)
			for _, pid := range pids {
				if exists(pid) {
					t.Errorf("process %d of %v still exists", pid, pids)
				}
			}
			_, err = c.Pids()
			_, errMemory := c.Memory()
			_, errPipes := c.Pipes()
			_, errUsage := c.Usage()
			for _, err := range []error{err, errMemory, errPipes, errUsage} {
				if !errors.Is(err, os.ErrProcessDone) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}
