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

// lateOutput is how long the output of an ended child may stay open, because another process has it.
const lateOutput = time.Second

// Group starts children and ends them together. If this process dies without closing the group, even by SIGKILL,
// the kernel kills the children (PR_SET_PDEATHSIG, prctl(2)), and their standard input ends.
//
// The death signal is tied to the thread that created the child, not to the process. So the group keeps one
// thread, and starts all children from it.
//
// A Group is safe for concurrent use.
type Group struct {
	work   chan func() // executed on the group's thread
	closed chan struct{}
	once   sync.Once
	thread sync.WaitGroup

	// children belongs to the thread while the thread runs, and then to Close.
	children []*Child
}

// NewGroup returns a group without children. Close must be called.
//
// Children get this process's present limit of descriptors, which the Go runtime has raised as far as possible
// (syscall.Setrlimit). Otherwise they would get the lower limit with which this process was started.
func NewGroup() *Group {
	g, _ := newGroup(func() error { return nil })
	return g
}

// newGroup returns a group. It runs prepare on the group's thread first.
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

// offMain runs f on a separate thread that ends with f, because it is never unlocked. It must not be the main
// thread: that thread ends only with the process, and /proc/self shows its namespaces.
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
		offMain(f) // on another thread, because this goroutine has locked the main thread
	}()
	<-done
}

// keepLimit sets the limit of descriptors to its present value. After that, the runtime does not lower the limit
// in children.
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

// Do runs f on the group's thread and waits for it. A socket that f makes is in the network namespace of the
// children, and may be used anywhere afterwards. No children can be started meanwhile. If the group is closed, the
// error is ErrClosed.
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
	Name string   // name in errors, such as "the load"
	Path string   // path of the executable
	Args []string // arguments, beginning with the name of the program
	Env  []string // environment; nil means the environment of this process
	Dir  string   // working directory; "" means the directory of this process
	// Files become the child's descriptors 3, 4 and so on. They still belong to the caller, who may close them
	// after Start.
	Files []*os.File
	// Orphan is the signal that the kernel sends to the child if this process dies without closing the group; 0
	// means SIGKILL. Only the child itself gets the signal. So a child with workers needs a signal at which it
	// ends them.
	Orphan syscall.Signal
}

// Start runs a child in a separate process group. So Ctrl-C in a terminal reaches only this process. The processes
// that the child starts must stay in the child's process group: their resources count as the child's, and they end
// with it.
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

// adopt starts c, and remembers that c must be ended. It runs on the group's thread. Close waits for that thread
// before it looks at the children.
func (g *Group) adopt(c *Child) error {
	if err := c.start(); err != nil {
		return err
	}
	g.children = append(g.children, c)
	return nil
}

// Close kills the processes that still run, and returns when all of them are gone.
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
