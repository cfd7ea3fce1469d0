package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/admin"
)

// Build builds penstock, and returns its path.
func Build(t testing.TB) string {
	t.Helper()
	return filepath.Join(software.Build(t, "github.com/penstock/penstock/proxy/cmd/penstock"), "penstock")
}

// A Program is a running penstock. Its client is the client of its admin socket.
type Program struct {
	*admin.Client
	T           testing.TB
	Path, Dir   string // the program, and the directory of its configuration, in which it runs
	Process     *os.Process
	Stdout, Log software.Output

	exited chan struct{} // closed once err is set
	err    error
}

// Start runs penstock run with a configuration until the end of the test.
func Start(t testing.TB, path, dir, configuration string, flags ...string) *Program {
	t.Helper()
	p := &Program{T: t, Path: path, Dir: dir}
	p.Configure(configuration)
	p.launch(append([]string{"run", "--config", "penstock.yaml"}, flags...))
	return p
}

// Proxy runs penstock proxy with flags until the end of the test.
func Proxy(t testing.TB, path, dir string, flags ...string) *Program {
	t.Helper()
	p := &Program{T: t, Path: path, Dir: dir}
	p.launch(append([]string{"proxy", "--admin", "unix:admin.sock"}, flags...))
	return p
}

// launch returns once the program serves.
func (p *Program) launch(args []string) {
	p.T.Helper()
	var err error
	if p.Client, err = admin.NewClient("unix:" + filepath.Join(p.Dir, "admin.sock")); err != nil {
		p.T.Fatal(err)
	}
	cmd := exec.Command(p.Path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.Dir, &p.Stdout, &p.Log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		p.T.Fatal(err)
	}
	p.Process, p.exited = cmd.Process, make(chan struct{})
	go func() { p.err = cmd.Wait(); close(p.exited) }()
	p.T.Cleanup(func() {
		p.Kill()
		if p.T.Failed() {
			p.T.Logf("log of penstock %s:\n%s", strings.Join(args, " "), p.Log.String())
		}
	})
	p.Until("it serves", func(s *admin.Status) bool { return s.PID == p.Process.Pid })
}

// Configure replaces the configuration. The admin socket is added to it.
func (p *Program) Configure(configuration string) {
	p.T.Helper()
	file := filepath.Join(p.Dir, "penstock.yaml")
	if err := errors.Join(os.WriteFile(file+".new", []byte("admin: {bind: \"unix:admin.sock\"}\n"+configuration), 0o600), os.Rename(file+".new", file)); err != nil {
		p.T.Fatal(err)
	}
}

// Reload brings another configuration into force by SIGHUP.
func (p *Program) Reload(configuration string) {
	p.T.Helper()
	next := p.State().Generation + 1
	p.Configure(configuration)
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		p.T.Fatal(err)
	}
	p.Until(fmt.Sprintf("generation %d is in force", next), func(s *admin.Status) bool { return s.Generation == next })
}

// State returns the status.
func (p *Program) State() *admin.Status {
	p.T.Helper()
	s, err := p.Status(context.Background())
	if err != nil {
		p.T.Fatal(err)
	}
	return &s
}

// Until waits until the status meets a condition.
func (p *Program) Until(what string, holds func(*admin.Status) bool) {
	p.T.Helper()
	var s admin.Status
	var err error
	for range 4 { // programs of BPF take long to load on a busy machine
		if condition.Eventually(func() bool {
			s, err = p.Status(context.Background())
			return p.over() || err == nil && holds(&s)
		}) {
			break
		}
	}
	if err != nil || !holds(&s) {
		p.T.Fatalf("not in time: %s: %v; the status is %+v", what, err, s)
	}
}

func (p *Program) over() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// At returns the first address of a listener.
func (p *Program) At(listener string) string {
	p.T.Helper()
	for _, l := range p.State().Listeners {
		if l.Name == listener && len(l.Addresses) > 0 {
			return l.Addresses[0]
		}
	}
	p.T.Fatalf("there is no listener %s", listener)
	panic("unreachable")
}

// Kill ends it at once.
func (p *Program) Kill() {
	_ = p.Process.Kill()
	<-p.exited
}

// End ends it by SIGTERM, and fails the test unless that is in good order.
func (p *Program) End() {
	p.T.Helper()
	_ = p.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(condition.Patience):
		p.T.Fatalf("penstock still runs %v after SIGTERM", condition.Patience)
	}
	if p.err != nil {
		p.T.Errorf("penstock after SIGTERM: %v", p.err)
	}
}
