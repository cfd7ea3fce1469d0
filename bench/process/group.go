package process

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
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
		Path: s.Path, Args: s.Args, Env: s.Env, Dir: s.Dir,
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

// Begin starts a child, sends it a line, unless the line is nil, and receives its first line. If that fails, it
// kills the child.
func (g *Group) Begin(ctx context.Context, s Spec, line, first any) (*Child, error) {
	c, err := g.Start(s)
	if err != nil {
		return nil, err
	}
	if line != nil {
		err = c.Send(line)
	}
	if err == nil {
		err = c.Receive(ctx, first)
	}
	if err != nil {
		c.Kill()
		return nil, err
	}
	return c, nil
}

// Run runs commands one after the other, in the network namespace of the group's children. It uses no shell: words
// are separated by blanks. It stops at the first command that fails. The error has the output of that command.
func (g *Group) Run(commands ...string) (err error) {
	for _, c := range commands {
		words := strings.Fields(c)
		cmd := exec.Command(words[0], words[1:]...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		if stop := g.Do(func() { err = cmd.Run() }); stop != nil {
			return stop
		}
		if err != nil {
			return fmt.Errorf("%s: %w: %s", c, err, bytes.TrimSpace(said.Bytes()))
		}
	}
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

// portRange is the range of local ports in a separate network namespace, where no other program uses ports. It
// allows some 64,000 connections from one address to another (ip(7), ip_local_port_range).
const portRange = "1024 65535"

// NewIsolatedGroup returns a group with its children in a separate network namespace. They see only their own
// loopback device, and no other process sees it. This process does not enter the namespace, except in functions
// that Do runs. The namespace ends with the group and the last child.
//
// It needs CAP_SYS_ADMIN. Without it, the error wraps syscall.EPERM. The thread that makes the namespace never
// runs anything else, and ends with the group.
func NewIsolatedGroup() (*Group, error) { return newGroup(isolate) }

// NewGroupWherePossible returns the group of [NewIsolatedGroup] if that is permitted. Otherwise it returns a group
// without a separate namespace, and the reason.
func NewGroupWherePossible() (g *Group, missing string) {
	g, err := NewIsolatedGroup()
	if err != nil {
		return NewGroup(), err.Error()
	}
	return g, ""
}

// isolate moves the calling thread into a new network namespace, and prepares the namespace for use.
func isolate() error {
	if err := sys.Unshare(sys.CLONE_NEWNET); err != nil {
		return fmt.Errorf("process: a network namespace: %w", os.NewSyscallError("unshare", err))
	}
	if err := sys.InterfaceUp("lo"); err != nil {
		return fmt.Errorf("process: loopback of a network namespace: %w", os.NewSyscallError("ioctl", err))
	}
	// This may fail, because /proc/sys may be read-only. The file shows the namespace of the thread that opens it.
	_ = os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte(portRange), 0)
	return nil
}
