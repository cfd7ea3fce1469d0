package main

import (
	"bytes"
	"errors"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/internal/completion"
	"github.com/penstock/penstock/proxy/internal/testutil/manual"
)

// call runs the program with args, and without signals.
func call(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(&cli.Env{Args: args, Stdout: &out, Stderr: &err, Getenv: func(string) string { return "" }})
	return code, out.String(), err.String()
}

func TestExitCodes(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		args string
		want int
	}{
		{"", cli.ExitOK},
		{"--help", cli.ExitOK},
		{"proxy --help", cli.ExitOK},
		{"version", cli.ExitOK},
		{"help", cli.ExitOK},
		{"help proxy", cli.ExitOK},
		{"--version", cli.ExitOK},
		{"-v", cli.ExitOK},
		{"version now", cli.ExitUsage},
		{"proxy", cli.ExitUsage},
		{"proxy --listen unix:/dev/null/s --to 127.0.0.1:1", cli.ExitError},
	} {
		code, stdout, stderr := call(strings.Fields(c.args)...)
		if code != c.want {
			t.Errorf("penstock %s: exit code %d, want %d", c.args, code, c.want)
		}
		if code == cli.ExitOK && (stdout == "" || stderr != "") {
			t.Errorf("penstock %s: prints %q, complains %q", c.args, stdout, stderr)
		}
		if code != cli.ExitOK && (stdout != "" || strings.Count(stderr, "\n") != 1) {
			t.Errorf("penstock %s: prints %q, complains %q, want one line", c.args, stdout, stderr)
		}
	}
}

func TestSummaryAsText(t *testing.T) {
	t.Parallel()

	s := admin.Summary{
		Connections: admin.Connections{Accepted: 1, Active: 2, Refused: 3},
		RefusedBy:   map[string]int64{"unavailable": 3},
		Bytes: admin.Bytes{
			ClientToEndpoint: admin.ByEngine{Spliced: 1, Copied: 5},
			EndpointToClient: admin.ByEngine{Spliced: 6, Copied: 7},
		},
		Lost:      8,
		Fallbacks: map[string]int64{"wrapped": 9, "urgent": 10},
	}
	const want = "1 connection accepted, 3 refused (unavailable 3); client to endpoint: 1 byte spliced, 5 copied; endpoint to client: 6 bytes spliced, 7 copied; 8 bytes not delivered: a receiver left, or its session was ended; fallbacks to copying: urgent 10, wrapped 9\n"
	var got bytes.Buffer
	if err := writeSummary(&got, "text", s); err != nil || got.String() != want {
		t.Errorf("summary is\n%s%v, want\n%s", got.String(), err, want)
	}
	got.Reset()
	s.Bytes.ClientToEndpoint.Lane, s.Bytes.EndpointToClient.Lane = 20, 30
	if err := writeSummary(&got, "text", s); err != nil || !strings.Contains(got.String(), "7 copied; in the lane: 20 bytes to endpoints, 30 to clients; 8 bytes not delivered: a receiver left, or its session was ended") {
		t.Errorf("%q, %v", got.String(), err)
	}
}

func TestWriteErrorsAreReported(t *testing.T) {
	t.Parallel()

	for _, form := range []string{"text", "json"} {
		if err := writeSummary(broken{}, form, admin.Summary{}); !errors.Is(err, errBroken) {
			t.Errorf("as %s: %v", form, err)
		}
	}
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

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

func typed(t *testing.T, path string, flags []string, lines ...string) string {
	t.Helper()
	dir := t.TempDir()
	program, err := os.Executable()
	must(t, err)
	must(t, os.Symlink(program, filepath.Join(dir, "penstock")))
	config := "listeners: [{name: db, bind: \"127.0.0.1:5432\", upstream: pg}]\nupstreams: [{name: pg, endpoints: [\"127.0.0.1:5433\"]}]\n"
	must(t, os.WriteFile(filepath.Join(dir, "good-one.yaml"), []byte(config), 0o600))
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
	must(t, os.WriteFile(bad, []byte("listeners: ["), 0o600))
	for _, flags := range [][]string{{"--admin", "unix:/nowhere"}, {"--admin", "?"}, {"--config", "/nowhere"}, {"--config", bad}} { // without a flag it would be another process of this machine, if there is one
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

	at := "--admin=" + serveUntil(t, `"msg":"starting"`, `
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
		var got string
		for range 20 { // a completion asks the process for a moment only
			if got = strings.Join(complete(line), " "); got == want {
				break
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// TestCommandsOfDocuments: the program has the commands in the pages' examples, with their arguments and flags.
func TestCommandsOfDocuments(t *testing.T) {
	t.Parallel()

	// A line in a fence or indented by four spaces. Outputs, whose columns are more than a space apart, are none.
	shown := regexp.MustCompile(`(?m)^(?:    )?(?:\$ )?(?:sudo )?penstock ([a-z-]\S*(?: \S+)*?)(?: +#.*)?$`)
	next, word := regexp.MustCompile(` +(?:\||&&|>|;|2>).*$`), regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
	pages, err := filepath.Glob("../../../docs/*.md")
	must(t, err)
	found := 0
	for _, page := range append(pages, "../../../README.md", "../../../README.zh-CN.md") {
		text, err := os.ReadFile(page)
		must(t, err)
		for _, m := range shown.FindAllStringSubmatch(string(text), -1) {
			found++
			args := word.FindAllString(next.ReplaceAllString(m[1], ""), -1)
			for i := range args {
				args[i] = strings.NewReplacer("'", "", `"`, "").Replace(args[i])
			}
			k, err := kong.New(new(commands))
			if err == nil {
				_, err = k.Parse(args)
			}
			if err != nil {
				t.Errorf("%s: penstock %s: %v", page, m[1], err)
			}
		}
	}
	if found < 30 {
		t.Errorf("the pages show %d commands", found)
	}
}

const manualDir = "../../../packaging/man"

// manualSections are the parts of penstock(1) that the command line does not have.
var manualSections = []manual.Section{
	{Title: "exit status", Text: `0 on success; 1 if the command failed, or if sessions were cut; 2 if the command line is wrong. With --exit-code, status exits with 3 if there are warnings, and with 4 if clients are not served. sessions end exits with 3 if some of the sessions go on.`},
	{Title: "environment", Text: `NO_COLOR, with any value, switches colours off. GOMAXPROCS, GOGC and GOMEMLIMIT work as in every Go program.`},
	{Title: "files", Text: "/etc/penstock/penstock.yaml, or else ./penstock.yaml, is the configuration of commands that are given none."},
}

func manPages(t *testing.T) map[string]string {
	t.Helper()
	app, err := commandLine().Model()
	must(t, err)
	return manual.Pages(app, manualSections...)
}

var updatePages = flag.Bool("update", false, "write the manual pages")

// TestManPages: packaging/man has the pages of the command line as it is now, and no others.
func TestManPages(t *testing.T) {
	t.Parallel()

	pages := manPages(t)
	if *updatePages {
		must(t, os.RemoveAll(manualDir))
		must(t, os.MkdirAll(manualDir, 0o755))
		for name, text := range pages {
			must(t, os.WriteFile(filepath.Join(manualDir, name), []byte(text), 0o644))
		}
	}
	const remedy = ".ci/run generate"
	files, err := os.ReadDir(manualDir)
	if err != nil {
		t.Fatalf("%v: %s", err, remedy)
	}
	for _, f := range files {
		have, err := os.ReadFile(filepath.Join(manualDir, f.Name()))
		must(t, err)
		if diff := cmp.Diff(string(have), pages[f.Name()]); diff != "" {
			t.Errorf("%s is not that of the command line (%s):\n%s", f.Name(), remedy, diff)
		}
		delete(pages, f.Name())
	}
	for name := range pages {
		t.Errorf("%s is missing: %s", name, remedy)
	}
}

// TestManPagesAreValid has groff's man and mandoc read the pages.
func TestManPagesAreValid(t *testing.T) {
	t.Parallel()

	pages := manPages(t)
	dir := t.TempDir()
	for name, text := range pages {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, reader := range [][]string{{"mandoc", "-T", "lint"}, {"man", "--warnings=all", "-l", "-Tutf8"}} {
		if _, err := exec.LookPath(reader[0]); err != nil {
			if os.Getenv("CI") != "" {
				t.Error(err)
			}
			t.Logf("%s is not installed", reader[0])
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(pages)) {
			cmd := exec.Command(reader[0], append(reader[1:len(reader):len(reader)], filepath.Join(dir, name))...)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "MANWIDTH=80"}
			stdout, stderr := new(strings.Builder), new(strings.Builder)
			cmd.Stdout, cmd.Stderr = stdout, stderr
			_ = cmd.Run() // its exit code is that of its complaints
			complaints := stderr.String()
			if reader[0] == "mandoc" {
				complaints = stdout.String()
			} else if stdout.Len() < 200 {
				t.Errorf("%s shows %s as %q", reader[0], name, stdout)
			}
			for line := range strings.Lines(complaints) {
				if !strings.Contains(line, "missing date") { // so they are the same every day
					t.Errorf("%s: %s", reader[0], line)
				}
			}
		}
	}
}

// setting returns the values of a setting in one of the project's units.
func setting(t *testing.T, unit, name string) (values []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "packaging", "systemd", unit))
	must(t, err)
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			values = append(values, value)
		}
	}
	return values
}

// TestUnits: the program has the flags of its unit, the configuration beside it is valid and
// names the passed sockets, the session log of its page can be written, and the notifications match the unit's type. The help of process drain warns of its Restart.
func TestUnits(t *testing.T) {
	t.Parallel()

	start := setting(t, "penstock.service", "ExecStart")
	if len(start) != 1 {
		t.Fatalf("ExecStart %q", start)
	}
	args := strings.Fields(start[0])
	if filepath.Base(args[0]) != "penstock" || args[1] != "run" {
		t.Errorf("it starts %q", args[:2])
	}
	_, help, _ := call("run", "--help")
	for _, flag := range args[2:] {
		if strings.HasPrefix(flag, "--") && !strings.Contains(help, flag+"=") {
			t.Errorf("penstock run has no %s", flag)
		}
	}
	config := filepath.Join("..", "..", "..", "packaging", "systemd", "penstock.yaml")
	if code, _, complaint := call("check", "--config", config); code != cli.ExitOK {
		t.Errorf("the configuration is not good: %s", complaint)
	}
	text, err := os.ReadFile(config)
	must(t, err)
	for _, name := range setting(t, "penstock.socket", "FileDescriptorName") {
		if !strings.Contains(string(text), `"systemd:`+name+`"`) {
			t.Errorf("no listener has the socket %s", name)
		}
	}
	if got := setting(t, "penstock.service", "Type"); len(got) != 1 || got[0] != "notify-reload" {
		t.Errorf("Type %q: it says when it reloads", got)
	}
	_, help, _ = call("process", "drain", "--help")
	if got := setting(t, "penstock.service", "Restart"); len(got) != 1 || !strings.Contains(strings.Join(strings.Fields(help), " "), "Restart="+got[0]+" starts the process again") {
		t.Errorf("Restart %q: the help of process drain does not warn of it", got)
	}
	if got := setting(t, "penstock.service", "RuntimeDirectory"); len(got) != 1 || !strings.Contains(string(text), "unix:/run/"+got[0]+"/") {
		t.Errorf("RuntimeDirectory %q is not that of the admin socket", got)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "session-log.md"))
	must(t, err)
	if got := setting(t, "penstock.service", "LogsDirectory"); len(got) != 1 || !strings.Contains(string(page), "{to: /var/log/"+got[0]+"/") {
		t.Errorf("LogsDirectory %q is not the directory of the session log in session-log.md", got)
	}
}

// TestInstall: packaging/install puts the program, its man pages, completions and units to their places.
func TestInstall(t *testing.T) {
	t.Parallel()

	dir, root := t.TempDir(), t.TempDir()
	program := filepath.Join(dir, "penstock")
	self, err := os.Executable()
	must(t, err)
	must(t, os.Symlink(self, program))
	cmd := exec.Command("sh", "../../../packaging/install", program, root)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "PREFIX=/usr"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for shell, path := range map[string]string{"bash": "bash-completion/completions/penstock", "zsh": "zsh/site-functions/_penstock", "fish": "fish/vendor_completions.d/penstock.fish"} {
		got, err := os.ReadFile(filepath.Join(root, "usr/share", path))
		if want, _ := completion.Script(shell); err != nil || string(got) != want {
			t.Errorf("completion of %s: %v, %d bytes", shell, err, len(got))
		}
	}
	for name := range manPages(t) {
		if _, err := os.Stat(filepath.Join(root, "usr/share/man/man1", name)); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{"usr/bin/penstock", "usr/lib/systemd/system/penstock.service", "usr/lib/systemd/system/penstock.socket"} {
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Error(err)
		}
	}
	wrong := exec.Command("sh", "../../../packaging/install")
	if out, err := wrong.CombinedOutput(); err == nil || !strings.HasPrefix(string(out), "usage: ") {
		t.Errorf("without a program: %v, %s", err, out)
	}
}

// TestWrongFlags: each command refuses values out of its bounds, and flags that exclude each other, and says what to write.
func TestWrongFlags(t *testing.T) {
	t.Parallel()

	for args, want := range map[string]string{
		"top --interval 1ms":                         "write 200ms to 1m",
		"top --interval 2m":                          "write 200ms to 1m",
		"top --admin 127.0.0.1:1 a b":                "unexpected argument",
		"demo --seconds 0":                           "write 1 to 3600",
		"demo --seconds NaN":                         "write 1 to 3600",
		"demo --rate 0":                              "write 1 to 1000",
		"demo --listen unix:/s":                      "the clients of the demo use TCP",
		"demo --listen foo":                          "--listen",
		"demo --seconds 2 forever":                   "unexpected argument",
		"endpoint weight app x -3":                   "-3 is negative: write 0 or more (see: penstock endpoint weight --help)",
		"why --for 2m":                               "write at most 1m0s",
		"why --source x":                             "write 10.0.0.7 or 10.0.0.0/8",
		"why 10.0.0.1:5 --upstream u":                "name one session, or write at most one of",
		"why --upstream u --listener l":              "name one session, or write at most one of",
		"confirm --generation 0":                     "write 1 or more",
		"reload --confirm 2m --rollback-if=":         "rollback-if",
		"reload --rollback-if=":                      "needs --confirm",
		"reload --admin=":                            "--admin is empty",
		"sessions --id=":                             "--id is empty: write a value, or leave the flag out (see: penstock sessions list --help)",
		"reload --rollback-if a --rollback-if b":     "reload: --rollback-if watches one counter: write it once (see: penstock reload --help)",
		"sessions end --source= --idle 1m":           "--source is empty",
		"sessions --watch --json":                    "--watch prints for a terminal",
		"sessions --top 20000":                       "write 1 to 10000",
		"sources --prefix 33":                        "write 1 to 32 for --prefix",
		"lane off --dry-run":                         "unknown flag --dry-run",
		"deny 10.0.0.7":                              "unexpected argument 10.0.0.7",
		"profile --format svg --admin unix:/nowhere": "go tool pprof -http=: FILE",
	} {
		if code, _, stderr := call(strings.Fields(args)...); code != cli.ExitUsage || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, %s, want %q", args, code, stderr, want)
		}
	}
}

// TestAbsoluteSocket: the path of a unix socket on the command line is relative to the command's own directory.
func TestAbsoluteSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.Getwd()
	must(t, err)
	for given, want := range map[string]string{
		"unix:s": "unix:" + dir + "/s", "unix:./s?mode=0600": "unix:" + dir + "/s?mode=0600", "unix:/run//s": "unix:/run//s", "unix:@s": "unix:@s", "unix:": "unix:", "h:1": "h:1",
	} {
		if got := absoluteSocket(given); got != want {
			t.Errorf("%s: %s, want %s", given, got, want)
		}
	}
}
