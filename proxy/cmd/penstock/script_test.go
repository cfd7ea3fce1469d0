package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/sockets"
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

// patience bounds every wait of a script.
const patience = 30 * time.Second

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
	if err != nil {
		t.Fatal(err)
	}
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
			if cond != "root" { // who may make a directory in /run
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			return os.Geteuid() == 0, nil
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

// onStage makes a script's command from a method of its stage.
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
