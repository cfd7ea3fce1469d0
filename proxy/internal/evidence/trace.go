package evidence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/kerneltrace"
)

// A Target says which processes are traced.
type Target struct {
	PIDs   []int  // traced with their children
	Cgroup string // a directory of cgroup v2, or ""
	// Admin is a client of the admin API, if there is only one process. If it is nil, sessions and endpoints have no names.
	Admin *admin.Client
}

// Trace traces until ctx ends. If the process lacks the privileges, the report says so, and has only the kernel's
// counters that every user may read. attached is called when the trace has begun.
func Trace(ctx context.Context, target Target, attached func()) (*Report, error) {
	r := &Report{Causes: []Cause{}, Events: []Event{}, Delays: []Delay{}, Threads: []Thread{}}
	if err := r.find(&target); err != nil {
		return nil, err
	}
	o := newOwners()
	r.list(ctx, target.Admin, o)
	before := readCounters(r.Processes)
	tracer, err := kerneltrace.Open(kerneltrace.Config{PIDs: r.Processes, Cgroup: target.Cgroup})
	refused, isRefused := errors.AsType[*kerneltrace.PrivilegeError](err)
	if err != nil && !isRefused {
		return nil, err
	}
	if err == nil {
		defer tracer.Close()
	}
	began := time.Now()
	boot, bootErr := sys.Monotonic()
	attached()
	if tracer != nil {
		err = tracer.Wait(ctx)
	}
	<-ctx.Done()
	r.Seconds = time.Since(began).Seconds()
	after := readCounters(r.Processes)
	if isRefused {
		r.counted(refused, before, after)
		return r, nil
	}
	if err != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("the queues of devices were measured only for a part of the time: %v", err))
	}
	if bootErr != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("the times of events are relative to the start of the machine: %v", bootErr))
	}
	reading, err := tracer.Read()
	if err != nil {
		return nil, err
	}
	r.list(context.WithoutCancel(ctx), target.Admin, o)
	r.Notes = append(r.Notes, tracer.Notes()...)
	for _, m := range tracer.Missing() {
		r.Missing = append(r.Missing, Missing{m.Tracepoint, m.Err.Error()})
	}
	r.build(reading, o, boot)
	return r, errors.Join(tracer.Close())
}

// find fills in the processes of a target.
func (r *Report) find(target *Target) (err error) {
	r.Processes = WithChildren(target.PIDs)
	switch {
	case target.Cgroup != "":
		r.Target = "cgroup " + target.Cgroup
		r.Processes, err = kerneltrace.CgroupProcesses(target.Cgroup)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("there is no cgroup %s: write its directory, such as /sys/fs/cgroup/system.slice/nginx.service (%w)", target.Cgroup, err)
		}
		return err
	case len(target.PIDs) == 0:
		return errors.New("no process to trace")
	}
	r.Target = fmt.Sprintf("process %d", target.PIDs[0])
	name := threadName(target.PIDs[0], target.PIDs[0])
	if name == "" {
		return &NoProcessError{PID: target.PIDs[0]}
	}
	r.Target += " (" + name + ")"
	if n := len(r.Processes) - len(target.PIDs); n > 0 {
		r.Target += fmt.Sprintf(" and %d children", n)
	}
	return nil
}

// A NoProcessError says that there is no process with this PID. It wraps [os.ErrProcessDone].
type NoProcessError struct{ PID int }

// Error implements error. It lists the processes of penstock.
func (e *NoProcessError) Error() string {
	text := fmt.Sprintf("there is no process %d", e.PID)
	if others := namesakes(); len(others) > 0 {
		return text + ": penstock runs as " + strings.Join(others, ", ")
	}
	return text + ", and penstock does not run"
}

// Unwrap implements [errors.Unwrap].
func (e *NoProcessError) Unwrap() error { return os.ErrProcessDone }

// namesakes returns the PIDs of other processes of penstock, ten at most.
func namesakes() (list []string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil && pid != os.Getpid() && threadName(pid, pid) == "penstock" && len(list) < 10 {
			list = append(list, strconv.Itoa(pid))
		}
	}
	return list
}

// WithChildren returns processes and their descendants (proc_pid_task_tid_children). If the kernel lacks
// CONFIG_PROC_CHILDREN, it returns no descendants.
func WithChildren(pids []int) []int {
	all := append([]int(nil), pids...)
	for i := 0; i < len(all) && len(all) < 4096; i++ {
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", all[i]))
		for _, task := range tasks {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", all[i], task.Name()))
			for _, field := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(field); err == nil {
					all = append(all, pid)
				}
			}
		}
	}
	return all
}

// list adds the names of the present listeners, endpoints and sessions.
func (r *Report) list(ctx context.Context, c *admin.Client, o *owners) {
	if c == nil {
		return
	}
	status, err := c.Status(ctx)
	if err == nil {
		o.addStatus(&status)
		var sessions admin.Sessions
		sessions, err = c.Sessions(ctx, admin.SessionQuery{}, admin.SessionOrder{})
		o.addSessions(sessions.Sessions)
		if sessions.More {
			r.Notes = append(r.Notes, fmt.Sprintf("only %d sessions are listed: the events of other sessions do not name their endpoint", len(sessions.Sessions)))
		}
	}
	if err != nil && ctx.Err() == nil {
		r.Notes = append(r.Notes, fmt.Sprintf("the names of listeners, endpoints and sessions are unknown: %v", err))
	}
}
