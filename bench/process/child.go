// Package process runs the parts of a benchmark as separate processes, so that the processor time of each part can
// be measured. It makes sure that no process outlives the benchmark, however the benchmark ends. It is for Linux
// only.
package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/prometheus/procfs"
)

// EndedError says that a child has ended without having been stopped.
type EndedError struct {
	Name  string // name of the child
	Pid   int
	State string // "exit status 2", "signal: killed"
	Said  string // last line of its standard error; may be empty
}

// Error returns one line.
func (e *EndedError) Error() string {
	text := fmt.Sprintf("%s (pid %d) ended unexpectedly: %s", e.Name, e.Pid, e.State)
	if e.Said != "" {
		text += ": " + e.Said
	}
	return text
}

// Child is a running process of a Group, together with the processes that it has started. It is safe for
// concurrent use, except for Send. A nil Child is no process: it uses nothing, holds nothing and never ends.
type Child struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser // owned here, closed by Kill and Stop
	stdout *lines
	stderr *lines
	done   chan struct{} // closed when the process has been reaped
	ended  error         // how it ended; nil for exit 0; written before done is closed

	mu   sync.Mutex
	over bool // the process has ended, so its PID and its group's ID may be reused soon
}

// start runs the process, and a goroutine that reaps it.
func (c *Child) start() error {
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	go c.reap()
	return nil
}

// reap waits until the process has ended. Then it ends the other processes of the group, and waits for the end of
// the output.
func (c *Child) reap() {
	for sys.WaitExited(c.Pid()) == syscall.EINTR {
	}
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.clear()
	c.ended = c.cmd.Wait()
	c.stdout.close()
	c.stderr.close()
	close(c.done)
}

// clear kills the other processes in the group of a process that has ended but was not reaped yet. It waits until
// they are gone, or for a limited time.
func (c *Child) clear() {
	deadline := time.Now().Add(lateOutput)
	for pause := time.Millisecond; len(members(c.Pid())) > 0 && time.Now().Before(deadline); pause *= 2 {
		_ = syscall.Kill(-c.Pid(), syscall.SIGKILL)
		time.Sleep(pause)
	}
}

// Name returns the name in the Spec.
func (c *Child) Name() string { return c.name }

// Pid returns the process id.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Done is closed when the process is gone.
func (c *Child) Done() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.done
}

// Err waits until the process ends without having been stopped, and describes that by an *EndedError.
func (c *Child) Err() error {
	<-c.done
	state := "exit status 0"
	if c.ended != nil {
		state = c.ended.Error()
	}
	return &EndedError{Name: c.name, Pid: c.Pid(), State: state, Said: c.stderr.newest()}
}

// Send writes v as one line of JSON to the child's standard input.
func (c *Child) Send(v any) error {
	if err := json.NewEncoder(c.stdin).Encode(v); err != nil {
		return fmt.Errorf("tell %s: %w", c.name, err)
	}
	return nil
}

// Receive reads the next line of the child's standard output into v. The line is JSON. See Stdout.
func (c *Child) Receive(ctx context.Context, v any) error {
	line, err := c.Stdout(ctx)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(line), v); err != nil {
		return fmt.Errorf("%s said %q: %w", c.name, line, err)
	}
	return nil
}

// Signal sends a signal.
func (c *Child) Signal(s os.Signal) error {
	if err := c.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal %s: %w", c.name, err)
	}
	return nil
}

// Stdout and Stderr return the next line of the child's standard output and standard error. They wait until there
// is a line, ctx ends, or the child has ended. If too many lines are unread, the oldest are dropped.
func (c *Child) Stdout(ctx context.Context) (string, error) { return c.line(ctx, c.stdout) }

// Stderr is documented at Stdout.
func (c *Child) Stderr(ctx context.Context) (string, error) { return c.line(ctx, c.stderr) }

func (c *Child) line(ctx context.Context, from *lines) (string, error) {
	line, err := from.next(ctx)
	if errors.Is(err, io.EOF) {
		return "", c.Err()
	}
	return line, err
}

// Stop sends s, ends the child's standard input, and waits for the end of the process. It kills a process that has
// not ended within d. If the exit status is not 0, the error says how the process ended.
func (c *Child) Stop(s os.Signal, d time.Duration) error {
	_ = c.cmd.Process.Signal(s)
	_ = c.stdin.Close()
	select {
	case <-c.done:
	case <-time.After(d):
		c.Kill()
		return fmt.Errorf("%s did not end within %v", c.name, d)
	}
	if c.ended != nil {
		return c.Err()
	}
	return nil
}

// kill sends SIGKILL to the process and all of its group.
func (c *Child) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		_ = syscall.Kill(-c.Pid(), syscall.SIGKILL)
	}
}

// Kill kills the process and its group, and waits until the process is gone.
func (c *Child) Kill() {
	if c == nil {
		return
	}
	c.kill()
	_ = c.stdin.Close()
	<-c.done
}

// Freeze stops the child by SIGSTOP, and returns when all its threads have stopped. Threads on other processors
// get the signal a little later. SIGCONT continues the child.
func (c *Child) Freeze(ctx context.Context) error {
	if err := c.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	const longest = 10 * time.Millisecond
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, longest) {
		if stopped, err := c.stopped(); stopped || err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stopped reports whether all threads are stopped (T in proc_pid_stat(5)).
func (c *Child) stopped() (bool, error) {
	threads, err := procfs.AllThreads(c.Pid())
	if err == nil && len(threads) == 0 {
		err = os.ErrProcessDone
	}
	for i := 0; err == nil && i < len(threads); i++ {
		var s procfs.ProcStat
		s, err = threads[i].Stat()
		switch {
		case gone(err):
			err = nil // the thread has ended
		case err == nil && s.State != "T":
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("threads of %s: %w", c.name, err)
	}
	return true, nil
}
