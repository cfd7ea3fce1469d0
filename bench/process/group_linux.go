package process

import (
	"errors"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// ErrClosed is returned by Start on a Group that has been closed.
var ErrClosed = errors.New("process: group closed")

// lateOutput is how long a child that has ended may keep its output open in
// the hands of a grandchild.
const lateOutput = time.Second

// Group starts children and ends them together. Should this process die
// without closing the group, even by SIGKILL, the kernel kills the children
// (PR_SET_PDEATHSIG, prctl(2)), and their standard input ends.
//
// The death signal is tied to the thread that created the child, not to the
// process, so all children are started from one thread that the group keeps.
//
// A Group is safe for concurrent use.
type Group struct {
	starts chan func() // run on the group's thread
	closed chan struct{}
	once   sync.Once
	thread sync.WaitGroup

	// children belongs to the thread while that runs, then to Close.
	children []*Child
}

// NewGroup returns a group without children. Close must be called.
func NewGroup() *Group {
	g := &Group{starts: make(chan func()), closed: make(chan struct{})}
	g.thread.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for {
			select {
			case start := <-g.starts:
				start()
			case <-g.closed:
				return
			}
		}
	})
	return g
}

// Spec says what to run.
type Spec struct {
	Name string   // in errors: "the load"
	Path string   // of the executable
	Args []string // its arguments, the first being its name
	Env  []string // its environment; nil for this process's own
}

// Start runs a child in a process group of its own, so that a terminal's
// Ctrl-C reaches the parent only, which then decides.
func (g *Group) Start(s Spec) (*Child, error) {
	c := &Child{name: s.Name, stdout: newLines(), stderr: newLines(), done: make(chan struct{})}
	c.cmd = &exec.Cmd{
		Path: s.Path, Args: s.Args, Env: s.Env,
		Stdout: c.stdout, Stderr: c.stderr,
		WaitDelay:   lateOutput,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	started := make(chan error)
	select {
	case g.starts <- func() { started <- g.adopt(c) }:
		if err := <-started; err != nil {
			return nil, err
		}
		return c, nil
	case <-g.closed:
		return nil, ErrClosed
	}
}

// adopt starts c and remembers to end it. It runs on the group's thread, which
// Close waits for before it looks at the children.
func (g *Group) adopt(c *Child) error {
	if err := c.start(); err != nil {
		return err
	}
	g.children = append(g.children, c)
	return nil
}

// Close kills what still runs and returns when all of it is gone.
func (g *Group) Close() {
	g.once.Do(func() { close(g.closed) })
	g.thread.Wait()
	for _, c := range g.children {
		_ = c.cmd.Process.Kill() // all at once, then wait
	}
	for _, c := range g.children {
		c.Kill()
	}
}
