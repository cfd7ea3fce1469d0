package verdict

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/proxy/admin"
)

// A balancer is `penstock run` under observation.
type balancer struct {
	child  *process.Child
	admin  *admin.Client
	at     netip.AddrPort
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
func startBalancer(ctx context.Context, n *network, run Runner, dir string, endpoint net.Addr, keys, more string) (*balancer, error) {
	socket := filepath.Join(dir, "admin.sock")
	text := more + fmt.Sprintf("admin: {bind: %q}\nlisteners: [{name: front, bind: \"%s:0\", upstream: back%s}]\n"+
		"upstreams: [{name: back, health_check: {interval: 1s}, endpoints: [{name: e, address: %q}]}]\n", "unix:"+socket, nearClient, keys, endpoint)
	file := filepath.Join(dir, "penstock.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	child, err := n.proxy.Start(run("--config", file, "--log", "json", "--log-level", "debug"))
	if err != nil {
		return nil, err
	}
	b := &balancer{child: child, ended: make(chan record, 16), health: make(chan record, 64)}
	for !b.at.IsValid() {
		r, err := b.next(ctx)
		if err != nil {
			child.Kill()
			return nil, err
		}
		if r.Msg == "listening" {
			b.at, _ = netip.ParseAddrPort(r.Address)
		}
	}
	// Other work on this machine is no fault of the experiment.
	if err := syscall.Setpriority(syscall.PRIO_PGRP, child.Pid(), nice); err != nil {
		child.Kill()
		return nil, fmt.Errorf("raise the priority of the balancer: %w", err)
	}
	if b.admin, err = admin.NewClient("unix:" + socket); err != nil {
		child.Kill()
		return nil, err
	}
	b.done.Go(b.watch)
	return b, nil
}

// nice is the priority of everything in the experiment.
const nice = -15

// A Runner returns how `penstock run` is run with arguments.
type Runner func(args ...string) process.Spec

func (b *balancer) next(ctx context.Context) (r record, err error) {
	line, err := b.child.Stderr(ctx)
	if err == nil {
		_ = json.Unmarshal([]byte(line), &r) // a line that is none has no Msg
	}
	return r, err
}

// watch keeps the ends of sessions and the transitions of endpoints.
func (b *balancer) watch() {
	for {
		r, err := b.next(context.Background())
		if err != nil {
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

func (b *balancer) close() {
	b.child.Kill()
	b.done.Wait()
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
		_ = os.WriteFile(filepath.Join(filepath.Dir(dir), "cgroup.procs"), fmt.Append(nil, b.child.Pid()), 0o644)
		for deadline := time.Now().Add(patience); os.Remove(dir) != nil && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
	}
	files["cgroup.procs"] = fmt.Sprint(b.child.Pid())
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
	return fmt.Sprintf("penstock-bench-%d-%d", os.Getpid(), time.Now().UnixNano())
}
