package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain is the program itself if it is called by the program's name, as by the scripts.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "penstock" {
		main()
	}
	leak.Main(inRuntime{m})
}

// inRuntime is tests with a runtime directory of their own: without one, those of root would make theirs in /run.
type inRuntime struct{ *testing.M }

func (m inRuntime) Run() int {
	dir, err := os.MkdirTemp("", "penstock-runtime-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	os.Setenv("XDG_RUNTIME_DIR", dir)
	return m.M.Run()
}

// TestScripts runs testdata/script. Beside testscript's own commands there are
//
//	start NAME [ulimit=N] args...
//	                          run penstock args... in the background, until it listens;
//	                          NAME_ADDR is then where, NAME_ADDR2 the second address
//	signal NAME SIGNAL        TERM, INT, HUP, USR1, KILL
//	stderr-has NAME regexp    wait until its standard error matches; likewise stdout-has
//	status SOCKET regexp      ask an admin socket for the status until its JSON matches
//	ended NAME code           wait for its end and compare its exit code (-1: killed); its output is
//	                          in NAME.stdout and NAME.stderr then
//	origin NAME [address]     serve an echo; NAME is then its address
//	nobody NAME               NAME is an address on which nobody listens
//	silent NAME               NAME is an address that never answers
//	client NAME verb [text]   dial ADDRESS, send, expect, finish (end of file both ways),
//	                          expect-eof, expect-reset, close
//	json FILE key=value...    the last line of FILE is a JSON object with those values
//	log-lines FILE            every line of FILE is a JSON object with time, level, msg
func TestScripts(t *testing.T) {
	t.Parallel()

	pipequota.Share(t)
	runScripts(t, "testdata/script")
}

// TestDoctorScripts runs testdata/doctor like testdata/script: penstock doctor takes all pipes
// that the user may have, for a moment.
func TestDoctorScripts(t *testing.T) {
	pipequota.Spend(t)
	runScripts(t, "testdata/doctor")
}

func runScripts(t *testing.T, dir string) {
	t.Helper()
	program, err := os.Executable()
	must(t, err)
	// Under nohup SIGHUP is ignored, which children inherit. They do not inherit a caught
	// signal.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hup) })
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		WorkdirRoot:         sockets.Dir(t),
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			bin := filepath.Join(e.WorkDir, ".bin")
			if err := os.Mkdir(bin, 0o755); err != nil {
				return err
			}
			e.Setenv("XDG_RUNTIME_DIR", e.WorkDir) // of private sockets
			e.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
			s := newStage()
			e.Values[stageKey{}] = s
			e.Defer(s.clear)
			return os.Symlink(program, filepath.Join(bin, "penstock"))
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root": // who may make a directory in /run
				return os.Geteuid() == 0, nil
			case "all": // root with all capabilities
				set, err := sys.Capabilities()
				return os.Geteuid() == 0 && set.Has(sys.CAP_SYS_ADMIN), err
			case "alone": // commands that name no process would find a service of this machine
				return others(func(string) (string, bool) { return "", false }) == "", nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"start":      onStage((*stage).start),
			"signal":     onStage((*stage).signal),
			"stderr-has": onStage((*stage).stderrHas),
			"stdout-has": onStage((*stage).stdoutHas),
			"status":     onStage((*stage).status),
			"ended":      onStage((*stage).ended),
			"origin":     onStage((*stage).origin),
			"nobody":     onStage((*stage).nobody),
			"silent":     onStage((*stage).silent),
			"client":     onStage((*stage).client),
			"json":       jsonCmd,
			"log-lines":  logLinesCmd,
		},
	})
}

func onStage(f func(s *stage, args []string) error) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg {
			ts.Fatalf("this command cannot be negated")
		}
		s := ts.Value(stageKey{}).(*stage)
		s.setenv, s.workDir = ts.Setenv, ts.Getenv("WORK")
		s.env = nil
		for _, name := range []string{"XDG_RUNTIME_DIR", "RUNTIME_DIRECTORY"} {
			s.env = append(s.env, name+"="+ts.Getenv(name))
		}
		ts.Check(f(s, args))
	}
}

func jsonCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: json file key=value...")
	}
	lines := strings.Split(strings.TrimSpace(ts.ReadFile(args[0])), "\n")
	var object map[string]any
	ts.Check(json.Unmarshal([]byte(lines[len(lines)-1]), &object))
	for _, arg := range args[1:] {
		key, want, _ := strings.Cut(arg, "=")
		var value any = object
		for part := range strings.SplitSeq(key, ".") {
			m, _ := value.(map[string]any)
			value = m[part]
		}
		if got := fmt.Sprint(value); got != want {
			ts.Fatalf("%s is %s, want %s, in %s", key, got, want, lines[len(lines)-1])
		}
	}
}

func logLinesCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: log-lines file")
	}
	level := regexp.MustCompile(`^(DEBUG|INFO|WARN|ERROR)$`)
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		var record struct {
			Time       time.Time
			Level, Msg string
		}
		if err := json.Unmarshal([]byte(line), &record); err != nil || record.Time.IsZero() || !level.MatchString(record.Level) || record.Msg == "" {
			ts.Fatalf("this is no line of the log: %s", line)
		}
	}
}

type stage struct {
	env       []string // of its processes, beside that of the test
	setenv    func(name, value string)
	workDir   string
	processes map[string]*program
	clients   map[string]net.Conn
	closers   []func()
}

type stageKey struct{}

func newStage() *stage {
	return &stage{processes: map[string]*program{}, clients: map[string]net.Conn{}}
}

func (s *stage) clear() {
	for _, p := range s.processes {
		p.cmd.Process.Kill()
		<-p.done
	}
	for _, c := range s.clients {
		c.Close()
	}
	for _, f := range s.closers {
		f()
	}
}

type program struct {
	cmd            *exec.Cmd
	stdout, stderr *output
	done           chan struct{} // closed after its end
}

// output keeps everything written to it.
type output struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	broken  bool
	changed chan struct{} // closed by the next Write
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	if o.broken {
		return 0, io.ErrClosedPipe // and package exec closes the pipe
	}
	return o.buf.Write(p)
}

// abandon makes the reader of the output go away, at the next write.
func (o *output) abandon() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken = true
}

func (o *output) text() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String(), o.changed
}

func (o *output) wait(expr string, n int, done <-chan struct{}) ([][]string, error) {
	re, err := regexp.Compile("(?m)" + expr)
	if err != nil {
		return nil, err
	}
	timeout := time.After(condition.Patience)
	for {
		text, changed := o.text()
		if found := re.FindAllStringSubmatch(text, n); len(found) == n {
			return found, nil
		}
		select {
		case <-changed:
		case <-timeout:
			return nil, fmt.Errorf("no %s in %q", expr, text)
		case <-done:
			if now, _ := o.text(); now == text {
				return nil, fmt.Errorf("it has ended, with no %s in %q", expr, text)
			}
		}
	}
}

func (s *stage) start(args []string) error {
	name, args := args[0], args[1:]
	command := []string{filepath.Join(s.workDir, ".bin", "penstock")}
	if n, ok := strings.CutPrefix(args[0], "ulimit="); ok {
		command = append([]string{"sh", "-c", "ulimit -n " + n + `; exec "$0" "$@"`}, command...)
		args = args[1:]
	}
	command = append(command, args...)
	p := &program{
		cmd:    exec.Command(command[0], command[1:]...),
		stdout: newOutput(), stderr: newOutput(), done: make(chan struct{}),
	}
	p.cmd.Env = append(os.Environ(), s.env...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = s.workDir, p.stdout, p.stderr
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		p.cmd.Wait() // the exit code is in cmd.ProcessState
		close(p.done)
	}()
	s.processes[name] = p
	listeners := 0
	for _, arg := range args {
		if arg == "--listen" {
			listeners++
		}
	}
	lines, err := p.stderr.wait(`listening"?.* ?"?address"?[=:]"?([^"\s]+)`, listeners, p.done)
	if err != nil {
		return err
	}
	for i, line := range lines {
		variable := name + "_ADDR"
		if i > 0 {
			variable += strconv.Itoa(i + 1)
		}
		s.setenv(variable, line[1])
	}
	return nil
}

func (s *stage) signal(args []string) error {
	signals := map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "USR1": syscall.SIGUSR1, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL}
	return s.processes[args[0]].cmd.Process.Signal(signals[args[1]])
}

func (s *stage) stderrHas(args []string) error {
	p := s.processes[args[0]]
	_, err := p.stderr.wait(args[1], 1, p.done)
	return err
}

// status asks for the status, as JSON in one line, until it matches: a byte is counted shortly
// after it was sent, not before it can arrive.
func (s *stage) status(args []string) error {
	re, err := regexp.Compile(args[1])
	if err != nil {
		return err
	}
	c, err := admin.NewClient("unix:" + filepath.Join(s.workDir, args[0]))
	if err != nil {
		return err
	}
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		st, err := c.Status(context.Background())
		if err != nil {
			return err
		}
		text, err := json.Marshal(st)
		if err != nil || re.Match(text) {
			return err
		}
		if time.Since(begin) > condition.Patience {
			return fmt.Errorf("no %s in %s", args[1], text)
		}
	}
}

func (s *stage) stdoutHas(args []string) error {
	p := s.processes[args[0]]
	_, err := p.stdout.wait(args[1], 1, p.done)
	return err
}

func (s *stage) ended(args []string) error {
	p := s.processes[args[0]]
	select {
	case <-p.done:
	case <-time.After(condition.Patience):
		text, _ := p.stderr.text()
		return fmt.Errorf("it has not ended: %s", text)
	}
	stdout, _ := p.stdout.text()
	stderr, _ := p.stderr.text()
	err := errors.Join(
		os.WriteFile(filepath.Join(s.workDir, args[0]+".stdout"), []byte(stdout), 0o644),
		os.WriteFile(filepath.Join(s.workDir, args[0]+".stderr"), []byte(stderr), 0o644),
	)
	if got := strconv.Itoa(p.cmd.ProcessState.ExitCode()); got != args[1] {
		return fmt.Errorf("the exit code is %s, want %s: %s", got, args[1], stderr)
	}
	return err
}

func (s *stage) origin(args []string) error {
	network, address := "tcp", "127.0.0.1:0"
	if len(args) > 1 {
		network, address = "unix", filepath.Join(s.workDir, args[1])
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				sockets.Echo(conn) // which takes no pipe of package net
				conn.Close()
			})
		}
	})
	s.closers = append(s.closers, func() {
		ln.Close()
		serving.Wait()
	})
	if network == "tcp" {
		s.setenv(args[0], ln.Addr().String())
	}
	return nil
}

// bound returns a socket with an address of its own, closed with the stage.
func (s *stage) bound() (fd int, addr string, err error) {
	if fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0); err != nil {
		return 0, "", err
	}
	s.closers = append(s.closers, func() { syscall.Close(fd) })
	if err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, "", err
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, "", err
	}
	return fd, fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port), nil
}

func (s *stage) nobody(args []string) error {
	_, addr, err := s.bound()
	s.setenv(args[0], addr)
	return err
}

// silent fills an accept queue: the kernel then drops further connects.
func (s *stage) silent(args []string) error {
	fd, addr, err := s.bound()
	if err != nil {
		return err
	}
	if err := syscall.Listen(fd, 0); err != nil {
		return err
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() { conn.Close() })
	// It is in the queue a moment after it is connected: with the last of the handshake.
	for queued := 0; queued == 0; {
		if queued, _, err = sys.ListenQueue(fd); err != nil {
			return err
		}
	}
	s.setenv(args[0], addr)
	return nil
}

func (s *stage) client(args []string) error {
	name, verb, text := args[0], args[1], ""
	if len(args) > 2 {
		text = args[2]
	}
	if verb == "dial" {
		return s.dial(name, text)
	}
	conn := s.clients[name]
	if err := conn.SetDeadline(time.Now().Add(condition.Patience)); err != nil && verb != "close" {
		return err
	}
	switch verb {
	case "send":
		_, err := io.WriteString(conn, text)
		return err
	case "expect":
		got := make([]byte, len(text))
		if n, err := io.ReadFull(conn, got); err != nil || string(got) != text {
			return fmt.Errorf("got %q, %v", got[:n], err)
		}
		return nil
	case "finish":
		if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			return err
		}
		return expectEnd(conn, io.EOF)
	case "expect-eof":
		return expectEnd(conn, io.EOF)
	case "expect-reset":
		return expectEnd(conn, syscall.ECONNRESET)
	case "close":
		return conn.Close()
	}
	return fmt.Errorf("client %s: no verb %s", name, verb)
}

func (s *stage) dial(name, address string) error {
	network := "tcp"
	if path, ok := bytes.CutPrefix([]byte(address), []byte("unix:")); ok {
		network, address = "unix", string(path)
	}
	conn, err := net.DialTimeout(network, address, condition.Patience)
	if errors.Is(err, syscall.ECONNRESET) { // already
		conn, err = reset{}, nil
	}
	if err != nil {
		return err
	}
	s.clients[name] = conn
	return nil
}

// reset is a connection that was reset before the client received it.
type reset struct{ net.Conn }

func (reset) Read([]byte) (int, error)    { return 0, syscall.ECONNRESET }
func (reset) SetDeadline(time.Time) error { return nil }
func (reset) Close() error                { return nil }

func expectEnd(conn net.Conn, want error) error {
	if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, want) {
		return fmt.Errorf("read %d bytes, %v, want %v", n, err, want)
	}
	return nil
}
