package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/cli"
)

// shells start a shell without the user's files, and read the script in it.
var shells = []struct {
	name  string
	flags []string
	setup string
}{
	{"bash", []string{"--norc", "--noprofile", "-i"}, "source <(penstock completion bash)"},
	{"zsh", []string{"-f", "-i"}, "autoload -U compinit; compinit -u -D; source <(penstock completion zsh)"},
	{"fish", []string{"--no-config", "-i"}, "penstock completion fish | source"},
}

// TestCompletion types beginnings of commands into real shells, completes them by a tab, and runs the commands.
func TestCompletion(t *testing.T) { // alone: a shell waits for the names of a process for as long as a user would
	bind := topProcess(t)
	for _, shell := range shells {
		t.Run(shell.name, func(t *testing.T) {
			path, err := exec.LookPath(shell.name)
			if err != nil {
				if os.Getenv("CI") != "" {
					t.Fatal(err)
				}
				t.Skipf("%s is not installed", shell.name)
			}
			text := typed(t, path, shell.flags,
				shell.setup,
				"penstock vers\t", // a command
				"penstock sta\t --admin "+bind+" --js\t",          // a flag
				"penstock status --admin "+bind+" --listener w\t", // a name of the running process
				"penstock status --admin "+bind+" --upstream=ap\t",
				"penstock schema good\t",                // a file
				"penstock schema --config=good\t",       // behind a =
				"penstock completion fis\t | head -n 1", // a value of an argument
			)
			for _, want := range []string{`penstock \(devel\)`, `"problems": \[`, `listener +web +serving`, `upstream +app +round_robin`, `(?s)"\$schema".*"\$schema"`, `commands in fish:`} {
				if !regexp.MustCompile(want).MatchString(text) {
					t.Errorf("no %q", want)
				}
			}
			for _, wrong := range []string{"error: ", "unknown flag", "unknown command", "unexpected", "not found", "there is no "} {
				if strings.Contains(text, wrong) {
					t.Errorf("%q", wrong)
				}
			}
			if t.Failed() {
				t.Logf("%s", text)
			}
		})
	}
}

// typed types lines into a shell, and returns all that it has shown.
func typed(t *testing.T, path string, flags []string, lines ...string) string {
	t.Helper()
	dir := t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(dir, "penstock")); err != nil {
		t.Fatal(err)
	}
	config := "listeners: [{name: db, bind: \"127.0.0.1:5432\", upstream: pg}]\nupstreams: [{name: pg, endpoints: [\"127.0.0.1:5433\"]}]\n"
	if err := os.WriteFile(filepath.Join(dir, "good-one.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, flags...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + dir, "TERM=xterm", "LANG=C.UTF-8", "PS1=$ "}
	term := openTerminal(t, 200, 50, cmd)
	for _, line := range lines {
		term.press(line + "\r")
	}
	term.press("exit\r")
	return term.ends()
}

// TestCompletionIsSilent: without a process, or with a configuration that is none, there are no names, and no error.
func TestCompletionIsSilent(t *testing.T) {
	t.Parallel()

	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("listeners: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"--admin", "unix:/nowhere"}, {"--admin", "?"}, {"--config", "/nowhere"}, {"--config", bad}, nil} {
		args := append(append([]string{"__complete", "--", "status"}, flags...), "--listener", "")
		if code, stdout, stderr := call(args...); code != cli.ExitOK || stdout != "=words\n" || stderr != "" {
			t.Errorf("%v: exit code %d, %q, %q", flags, code, stdout, stderr)
		}
	}
	if code, _, stderr := call("completion", "tcsh"); code != cli.ExitUsage || !strings.Contains(stderr, "bash") {
		t.Errorf("tcsh: exit code %d, %s", code, stderr)
	}
}

// TestCompletionOfValues: states and verdicts of sessions are those that the process knows; the upstreams of a split
// and the sources that are denied are those of the process.
func TestCompletionOfValues(t *testing.T) {
	t.Parallel()

	at := "--admin=" + serveUntil(t, `msg=starting`, `
listeners:
  - {name: web, bind: "127.0.0.1:0", upstream: app}
  - {name: halves, bind: "127.0.0.1:0", routes: [{split: [{upstream: app, percent: 50}, {upstream: other, percent: 50}]}]}
upstreams: [{name: app, endpoints: ["127.0.0.1:1"]}, {name: other, endpoints: ["127.0.0.1:1"]}]
`)
	complete := func(line string) []string {
		t.Helper()
		code, stdout, stderr := call(append([]string{"__complete", "--"}, strings.Split(line, " ")...)...)
		words := strings.Fields(stdout)
		if code != cli.ExitOK || stderr != "" || len(words) == 0 || words[len(words)-1] != "=words" {
			t.Fatalf("%s: exit code %d, %q, %q", line, code, stdout, stderr)
		}
		return words[:len(words)-1]
	}
	for flag, n := range map[string]int{"--state": 8, "--verdict": 9} {
		values := complete("sessions " + flag + " ")
		if len(values) != n {
			t.Errorf("%s: %q", flag, values)
		}
		for _, value := range values {
			if code, _, stderr := call("sessions", at, flag, value); code != cli.ExitOK {
				t.Errorf("%s %s: %s", flag, value, stderr)
			}
		}
		if end := complete("sessions end " + flag + " "); len(end) != n {
			t.Errorf("end %s: %q", flag, end)
		}
	}
	for _, source := range []string{"192.0.2.7", "2001:db8::/64", "unix:uid=4711"} {
		if code, _, stderr := call("deny", "add", at, source, "--for", "1h"); code != cli.ExitOK {
			t.Fatal(stderr)
		}
	}
	for line, want := range map[string]string{
		"deny remove " + at + " ":                 "192.0.2.7 2001:db8::/64 unix:uid=4711",
		"deny remove " + at + " 2":                "2001:db8::/64",
		"deny add " + at + " ":                    "",
		"split set " + at + " halves ":            "app: other:",
		"split set " + at + " halves app:5 ":      "other:",
		"split set " + at + " halves --route 1 ":  "",
		"split set " + at + " web ":               "",
		"split set " + at + " halves app:5 other": "other:",
	} {
		if got := strings.Join(complete(line), " "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
