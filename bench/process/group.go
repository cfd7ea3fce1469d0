package process

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// ErrClosed is returned by Start on a Group that has been closed.
var ErrClosed = errors.New("process: group closed")

// lateOutput is how long a child that has ended may keep its output open in
// the hands of a grandchild.
const lateOutput = time.Second

// Group starts children and ends them together. Should this process die without
// closing the group, even by SIGKILL, the kernel kills the children
// (PR_SET_PDEATHSIG, prctl(2)), and their standard input ends.
//
// The death signal is tied to the thread that created the child, not to the
// process. So all children are started from one thread that the group keeps.
//
// A Group is safe for concurrent use.
type Group struct {
	work   chan func() // done on the group's thread
	closed chan struct{}
	once   sync.Once
	thread sync.WaitGroup

	// children belongs to the thread while that runs, then to Close.
	children []*Child
}

// NewGroup returns a group without children. Close must be called.
//
// It makes this process hand its own limit of descriptors on to children,
// which the runtime has raised as far as it may be (syscall.Setrlimit); else
// they would be given the lower one with which this process was started.
func NewGroup() *Group {
	g, _ := newGroup(func() error { return nil })
	return g
}

// newGroup returns a group after prepare has run on its thread.
func newGroup(prepare func() error) (*Group, error) {
	keepLimit()
	g := &Group{work: make(chan func()), closed: make(chan struct{})}
	prepared := make(chan error)
	g.thread.Go(func() {
		offMain(func() {
			prepared <- prepare()
			g.run()
		})
	})
	if err := <-prepared; err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// offMain runs f on a thread of its own that ends with f, because it is never unlocked. That
// must not be the main thread: it does not end before the process, and /proc/self shows its
// namespaces.
func offMain(f func()) {
	runtime.LockOSThread()
	if sys.Gettid() != syscall.Getpid() {
		f()
		return
	}
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() {
		defer close(done)
		offMain(f) // not here: this thread is taken
	}()
	<-done
}

// keepLimit sets the limit of descriptors to its current value, after which the runtime does
// not lower it in children.
func keepLimit() {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) == nil {
		l.Cur = l.Max
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
	}
}

// run calls the functions it receives until the group is closed.
func (g *Group) run() {
	for {
		select {
		case f := <-g.work:
			f()
		case <-g.closed:
			return
		}
	}
}

// Do runs f on the group's thread and waits for it. A socket that f makes is of
// the network namespace in which the children live, and may be used anywhere
// afterwards. Children cannot be started meanwhile. The error is ErrClosed.
func (g *Group) Do(f func()) error {
	done := make(chan struct{})
	select {
	case g.work <- func() { defer close(done); f() }:
		<-done
		return nil
	case <-g.closed:
		return ErrClosed
	}
}

// Spec is the program to run.
type Spec struct {
	Name string   // in errors: "the load"
	Path string   // of the executable
	Args []string // its arguments, the first being its name
	Env  []string // its environment; nil for this process's own
	Dir  string   // its working directory; "" for this process's own
	// Files become its descriptors 3, 4 and so on. They still belong to the caller, which
	// may close them after Start.
	Files []*os.File
	// Orphan is the signal that the kernel sends it should this process die
	// without closing the group; 0 is SIGKILL. It reaches this one process
	// only: a process with workers is better asked to end them.
	Orphan syscall.Signal
}

// Start runs a child in a process group of its own, so that a terminal's Ctrl-C reaches the
// parent only, which then decides. Processes that the child starts are taken to stay in that
// process group: they count and end with it.
func (g *Group) Start(s Spec) (*Child, error) {
	c := &Child{name: s.Name, stdout: newLines(), stderr: newLines(), done: make(chan struct{})}
	c.cmd = &exec.Cmd{
		Path: s.Path, Args: s.Args, Env: s.Env, Dir: s.Dir, ExtraFiles: s.Files,
		Stdout: c.stdout, Stderr: c.stderr,
		WaitDelay:   lateOutput,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: cmp.Or(s.Orphan, syscall.SIGKILL)},
	}
	var started error
	if err := g.Do(func() { started = g.adopt(c) }); err != nil {
		return nil, err
	}
	if started != nil {
		return nil, started
	}
	return c, nil
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

// Close kills the processes that still run and returns when all of them are gone.
func (g *Group) Close() {
	g.once.Do(func() { close(g.closed) })
	g.thread.Wait()
	for _, c := range g.children {
		c.kill() // all at once, then wait
	}
	for _, c := range g.children {
		c.Kill()
	}
}
