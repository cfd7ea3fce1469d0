package contestant

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/penstock/penstock/bench/process"
)

// server is a proxy by other authors: a program with a configuration file.
type server struct {
	binary  string // key in Setting.Binaries, and name of the executable
	install string // how to install it
	file    string // name of the configuration file

	// text writes the configuration, with the address to listen at.
	text func(ctx context.Context, s *Setting, listen string) string
	// args returns the program's arguments. file is the name of the configuration file in the working directory.
	args func(s *Setting, file string) []string
	// check returns an error if the program at path lacks something. It may be nil.
	check func(ctx context.Context, path string) error
	// threaded says that each thread has a socket. workers says that each thread is a process, beside a master.
	threaded, workers bool
	// ask gets the account of the server in the working directory dir. It may be nil.
	ask func(ctx context.Context, dir string) (*Account, error)
	// orphan is the signal that ends the server if this process dies.
	orphan syscall.Signal
}

// sbin are directories with servers that are not in an ordinary user's PATH.
var sbin = []string{"/usr/local/sbin", "/usr/sbin", "/sbin"}

func (v *server) path(s *Setting) (string, error) {
	if named := s.Binaries[v.binary]; named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("%s: %w", v.binary, err)
		}
		return filepath.Abs(path)
	}
	for _, name := range append([]string{v.binary}, under(sbin, v.binary)...) {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("%s is not installed: %s, or write --binary %s=/path", v.binary, v.install, v.binary)
}

func under(dirs []string, name string) (paths []string) {
	for _, dir := range dirs {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}

func (v *server) Available(ctx context.Context, s *Setting) error {
	path, err := v.path(s)
	if err == nil && v.check != nil {
		err = v.check(ctx, path)
	}
	return err
}

func (v *server) Config(ctx context.Context, s *Setting) string { return v.text(ctx, s, s.listen()) }

// attempts is how many ports are tried if other processes take a port first.
const attempts = 3

func (v *server) start(ctx context.Context, name string, s *Setting) (*Contestant, error) {
	if err := v.Available(ctx, s); err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		at, err := freePort(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		c, err := v.startAt(ctx, name, s, at)
		if errors.Is(err, syscall.EADDRINUSE) && at.String() != s.listen() && attempt < attempts {
			continue
		}
		return c, err
	}
}

// inUseError says that a server did not start because the port is in use. The text comes from the server.
type inUseError struct{ error }

// Unwrap is for errors.Is.
func (inUseError) Unwrap() error { return syscall.EADDRINUSE }

// freePort returns the address to listen at. It replaces the port 0 by a port that was free in the group's network
// namespace a moment ago.
func freePort(s *Setting) (netip.AddrPort, error) {
	for _, to := range s.endpoints() {
		if _, err := netip.ParseAddrPort(to); err != nil {
			return netip.AddrPort{}, fmt.Errorf("cannot forward to %q: write an IPv4 address and a port", to)
		}
	}
	at, err := netip.ParseAddrPort(s.listen())
	if err != nil || !at.Addr().Is4() {
		return at, fmt.Errorf("cannot listen at %q: write an IPv4 address and a port, such as 127.0.0.1:0", s.listen())
	}
	if at.Port() != 0 {
		return at, nil
	}
	closed := s.Group.Do(func() {
		var l net.Listener
		if l, err = net.Listen("tcp4", at.String()); err == nil {
			at = l.Addr().(*net.TCPAddr).AddrPort()
			err = l.Close()
		}
	})
	return at, errors.Join(closed, err)
}

// startAt starts the server at an address and waits until it listens there.
func (v *server) startAt(ctx context.Context, name string, s *Setting, at netip.AddrPort) (*Contestant, error) {
	path, err := v.path(s)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(s.Dir, name+"-")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := os.WriteFile(filepath.Join(dir, v.file), []byte(v.text(ctx, s, at.String())), 0o600); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	child, err := s.Group.Start(process.Spec{
		Name: name, Path: path, Dir: dir, Orphan: v.orphan,
		Args: append([]string{v.binary}, v.args(s, filepath.Join(dir, v.file))...),
	})
	if err != nil {
		return nil, err
	}
	if err := v.await(ctx, child, s, at); err != nil {
		child.Kill()
		return nil, err
	}
	c := &Contestant{Name: name, Address: at.String(), child: child, mortal: true}
	if v.ask != nil {
		c.ask = func(ctx context.Context) (*Account, error) { return v.ask(ctx, dir) }
	}
	return c, nil
}

// await waits until the child listens. It looks at the child's sockets and does not connect, because the server
// would count that connection.
func (v *server) await(ctx context.Context, child *process.Child, s *Setting, at netip.AddrPort) error {
	const longest = 50 * time.Millisecond
	whole, processes := 1, 1
	if v.threaded {
		whole = s.threads()
	}
	if v.workers {
		processes += s.threads()
	}
	for pause := time.Millisecond; ; pause = min(2*pause, longest) {
		sockets, err := child.Listening(at)
		if err == nil && sockets >= whole {
			pids, err := child.Pids()
			if err == nil && len(pids) >= processes {
				return nil
			}
		}
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-child.Done():
			return v.refusal(ctx, child, s)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// refusal returns why a server ended before it listened.
func (v *server) refusal(ctx context.Context, child *process.Child, s *Setting) error {
	said := lastWords(ctx, child)
	if said == "" {
		path, _ := v.path(s) // no error: it was run before
		return fmt.Errorf("%w: is %s really %s? --binary %s=PATH names another", child.Err(), path, v.binary, v.binary)
	}
	err := fmt.Errorf("%s did not start: %s", child.Name(), said)
	if strings.Contains(strings.ToLower(said), "address already in use") {
		return inUseError{err}
	}
	return err
}

// lastWords returns the last complaints in the standard error of a child that has ended, on one line.
func lastWords(ctx context.Context, child *process.Child) string {
	const most = 3
	var said []string
	for {
		line, err := child.Stderr(ctx)
		if err != nil {
			break
		}
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "[NOTICE]") {
			said = append(said, line)
		}
	}
	return strings.Join(said[max(len(said)-most, 0):], "; ")
}

// descriptors returns how many descriptors a child may open.
func descriptors() int {
	const few = 1024
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return few
	}
	const many = 1 << 20 // programs allocate tables for all of them
	return int(min(l.Max, many))
}

// execute fills in a configuration. Our templates accept all values that are given.
func execute(t *template.Template, values map[string]any) string {
	var b strings.Builder
	if err := t.Execute(&b, values); err != nil {
		panic(err)
	}
	return b.String()
}

// probePatience is how long a program may take to print its version or a test result.
const probePatience = 5 * time.Second

// versions find the version in the output of each program.
var versions = map[string]*regexp.Regexp{
	"haproxy": regexp.MustCompile(`version (\S+)`),
	"nginx":   regexp.MustCompile(`nginx/(\S+)`),
	"envoy":   regexp.MustCompile(`version: [0-9a-f]+/([^/\s]+)`),
}

// Version returns the version of the kind's program. It runs the program for 5 s at most. The version is empty if
// the kind is this program, if the program is missing, or if it prints no version.
func (k *Kind) Version(ctx context.Context, s *Setting) string {
	v, ok := k.starter.(*server)
	if !ok {
		return ""
	}
	path, err := v.path(s)
	if err != nil {
		return ""
	}
	flag := "-v"
	if v.binary == "envoy" {
		flag = "--version"
	}
	said, _ := probe(ctx, path, flag)
	if found := versions[v.binary].FindSubmatch(said); found != nil {
		return string(found[1])
	}
	return ""
}

// probe runs a program that ends soon by itself, and returns what it has written to standard output and standard
// error. After 5 s, or when ctx ends, it kills the program and all processes that it has started. It does not wait
// for processes that live on with the output open.
func probe(ctx context.Context, path string, args ...string) ([]byte, error) {
	slow := fmt.Errorf("the process did not end within %v", probePatience)
	ctx, cancel := context.WithTimeoutCause(ctx, probePatience, slow)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = probePatience / 10
	said, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return said, fmt.Errorf("%s %s: %w", filepath.Base(path), args[0], err)
	}
	return said, nil
}
