package main

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/full"
)

// A command that is interrupted while it measures reports its results so far,
// reports the interruption in one line and leaves nothing behind.
func TestWhatIsInterruptedIsReported(t *testing.T) {
	full.Only(t, "it measures")
	for name, x := range map[string]interrupted{
		"idle": {
			args:      []string{"--sessions", "20", "--rest", "0.02", "--seconds", "0.05", "--rounds", "1000"},
			at:        []string{"penstock   ", " for a message"},
			processes: 3,
			printed:   []string{"Interrupted: what follows is what was measured until then.\n", "\ntime for a message "},
			written:   `"seconds_per_message"`,
		},
		"switches": {
			args:      []string{"--connections", "20", "--seconds", "0.1", "--rounds", "1000"},
			at:        []string{"round 1 of 1000"},
			processes: 2,
			printed:   []string{"Interrupted: what follows is what was measured until then.\n", "\nthreads  "},
			written:   `"requests_per_second"`,
		},
		"soak": {
			args:      []string{"--connections", "4", "--duration", "1h", "--seed", "42", "--loops", "1"},
			at:        []string{" connections opened, "},
			processes: 2,
			printed:   []string{"penstock-bench soak, seed 42: 4 connections at once", "Interrupted: what follows is what was done until then.\n"},
			written:   `"seed": 42`,
		},
	} {
		t.Run(name, func(t *testing.T) { x.test(t, name) })
	}
}

// interrupted is a bench command with its flags, and its interruption.
type interrupted struct {
	args      []string
	at        []string // texts of the line of progress at the interruption
	processes int      // the least number of measuring processes by then
	printed   []string
	written   string
}

func (x *interrupted) test(t *testing.T, command string) {
	mark, file := "PENSTOCK_INTERRUPTED_TEST="+rand.Text(), filepath.Join(t.TempDir(), "f.json")
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", // called by the program's name, the test binary is the program
		Args: append([]string{"penstock-bench", command, "--json", file}, x.args...),
		Env:  append(os.Environ(), mark),
	}
	done := false
	stdout, last := interruptAt(t, cmd, func(line string) bool {
		if done || !includes(line, x.at...) {
			return false
		}
		done = true
		if n := len(marked(t, mark)); n < x.processes {
			t.Errorf("%d processes measure", n)
		}
		return true
	})
	if last != "penstock-bench: "+command+": interrupted" || !includes(stdout, x.printed...) {
		t.Errorf("%q, %q", last, stdout)
	}
	if text := content(t, file); !includes(text, `"interrupted": true`, x.written) {
		t.Errorf("document: %s", text)
	}
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("processes left: %q", left)
	}
}

// includes reports whether text contains all parts.
func includes(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// marked lists the processes that have a mark in their environment.
func marked(t *testing.T, mark string) []string {
	t.Helper()
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range environs {
		environ, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(environ, []byte(mark)) {
			continue // gone, a zombie or another user's
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
	}
	return found
}
