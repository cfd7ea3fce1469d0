package pages

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/internal/testutil/program"
)

func TestMain(m *testing.M) { leak.Main(m) }

// TestPages types the commands of the pages that promise it. A whole page is one story; the sections of others stand alone.
func TestPages(t *testing.T) {
	software.Long(t, "pages")
	owner := software.Ordinary(t)
	bin := software.Dir(t, owner)
	must(t, os.Rename(program.Build(t), filepath.Join(bin, "penstock")))
	for page, story := range map[string]bool{"tutorial": true, "howto": false, "haproxy": true, "adopting": true} {
		text, err := os.ReadFile("../../../docs/" + page + ".md")
		must(t, err)
		if page == "adopting" {
			buildForwarder(t, string(text), filepath.Join(bin, "myproxy"))
		}
		sections := []string{string(text)}
		if !story {
			sections = strings.Split(string(text), "\n## ")[1:]
		}
		for _, section := range sections {
			title, _, _ := strings.Cut(section, "\n")
			t.Run(page+"/"+title, func(t *testing.T) {
				t.Parallel()
				blocks := read(section)
				if len(blocks) < 2 {
					t.Fatalf("the page has %d blocks of commands", len(blocks))
				}
				need(t, section)
				sh := open(t, bin)
				if page == "adopting" {
					sh.run("ln -s " + filepath.Join(bin, "myproxy")) // for go build -o myproxy
				}
				for _, b := range blocks {
					sh.types(b)
				}
			})
		}
	}
}

// buildForwarder builds the forwarder of a page as a program, with less patience.
func buildForwarder(t *testing.T, page, program string) {
	t.Helper()
	code := ""
	for _, m := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(page, 2) {
		code += m[1]
	}
	patient := strings.Replace(code, "30*time.Second", "time.Second", 1)
	if patient == code {
		t.Error("the page has another patience")
	}
	main := filepath.Join(t.TempDir(), "main.go")
	must(t, os.WriteFile(main, []byte(imports+patient), 0o600))
	if out, err := exec.Command("go", "build", "-o", program, main).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

const imports = `package main

import (
	"context"
	"errors"
	"log"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/relay"
)

`

// A block has commands that are typed together, and the output that the page shows for them; empty: none.
type block struct{ commands, shown string }

// read returns the blocks of a section: each that is marked as sh, with the unmarked one that follows it at once.
func read(section string) (list []block) {
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$(?:\n\n^```\n(.*?)^```$)?").FindAllStringSubmatch(section, -1) {
		list = append(list, block{m[1], m[2]})
	}
	return list
}

// need skips the test, or fails it, if a program that the section uses is not installed.
func need(t *testing.T, section string) {
	for program, pkg := range map[string]string{
		"unshare": "util-linux", "setpriv": "util-linux", "ip": "iproute2", "python3": "python3", "curl": "curl", "openssl": "openssl",
		"haproxy": "haproxy", "nginx": "nginx", "redis-server": "redis-server", "redis-cli": "redis-tools", "psql": "postgresql-client",
	} {
		if strings.Contains(section, program+" ") || pkg == "util-linux" || pkg == "iproute2" {
			software.Need(t, program, pkg)
		}
	}
	if strings.Contains(section, "initdb ") {
		software.Postgres(t)
	}
}

// A shell is the terminal of a reader: an ordinary user, with a network, processes and an empty directory of its own.
type shell struct {
	*testing.T
	home   string    // the reader's; the commands are typed elsewhere
	blocks io.Writer // takes the paths of files with commands, one a line
	said   *software.Output
	typed  int // the number of blocks
}

// Everything in a namespace of processes ends with its first one. The shell is that one, and ends when it has no more blocks to read.
const (
	privately = "unshare --user --map-current-user --keep-caps --net --ipc --pid --fork --kill-child --mount-proc"
	connected = `ip link set lo up && exec setpriv --inh-caps=-all --ambient-caps=-all bash -c "$0"`
	reading   = `trap _failed=1 ERR
while read -r -u 3 _block; do
	_failed=
	. "$_block" </dev/null 3<&-
	echo "$_block ends $_failed"
done`
)

// open opens a shell until the end of the test.
func open(t *testing.T, bin string) *shell {
	t.Helper()
	owner := software.Ordinary(t)
	sh := &shell{T: t, home: software.Dir(t, owner), said: new(software.Output)}
	private := &syscall.SysProcAttr{Credential: software.Credential(t, owner), Pdeathsig: syscall.SIGKILL}
	begin := strings.Fields(privately)
	try := exec.Command(begin[0], append(begin[1:], "ip", "link", "set", "lo", "up")...)
	try.SysProcAttr, try.Dir = private, sh.home
	if out, err := try.CombinedOutput(); err != nil {
		t.Skipf("no namespaces of an ordinary user: %v: %s", err, out)
	}
	blocks, typing, err := os.Pipe()
	must(t, err)
	output, printing, err := os.Pipe()
	must(t, err)
	cmd := exec.Command(begin[0], append(begin[1:], "bash", "-c", connected, reading)...)
	cmd.Dir, cmd.SysProcAttr = software.Dir(t, owner), private
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = []*os.File{blocks}, printing, printing
	cmd.Env = []string{"PATH=" + bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + sh.home, "XDG_RUNTIME_DIR=" + sh.home, "LC_ALL=C.UTF-8"}
	err = cmd.Start()
	must(t, errors.Join(err, blocks.Close(), printing.Close()))
	sh.blocks = typing
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(sh.said, output)
	}()
	t.Cleanup(func() {
		must(t, typing.Close())
		patience := condition.Patience
		if t.Failed() { // it may wait for a command that does not end
			patience = time.Second
		}
		kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		if err := cmd.Wait(); err != nil || !kill.Stop() {
			t.Errorf("the shell: %v", err)
		}
		<-read
		output.Close()
	})
	return sh
}

// types types a block. If the page shows an output, a reader looks again until it comes; else the commands have to succeed.
func (sh *shell) types(b block) {
	sh.Helper()
	var out, missing string
	failed := false
	if !condition.Eventually(func() bool {
		out, failed = sh.run(b.commands)
		missing = lacks(out, b.shown)
		return missing == ""
	}) {
		sh.Fatalf("the output has no line %q after the ones before:\n%s%s", missing, b.commands, out)
	}
	if b.shown == "" && failed {
		sh.Fatalf("failed:\n%s%s", b.commands, out)
	}
	sh.Logf("%s\n%s", b.commands, out)
}

// run returns the output of commands, and of what runs beside them, and whether one failed.
func (sh *shell) run(commands string) (out string, failed bool) {
	sh.Helper()
	sh.typed++
	file := filepath.Join(sh.home, fmt.Sprint("block", sh.typed))
	must(sh.T, os.WriteFile(file, []byte(commands), 0o644))
	before := len(sh.said.String())
	_, err := fmt.Fprintln(sh.blocks, file)
	must(sh.T, err)
	ended := false
	condition.Eventually(func() bool {
		var rest string
		out, rest, ended = strings.Cut(sh.said.String()[before:], file+" ends ")
		failed = strings.HasPrefix(rest, "failed")
		return ended && strings.Contains(rest, "\n")
	})
	if !ended {
		sh.Fatalf("these commands do not end:\n%s%s", commands, out)
	}
	return out, failed
}

// lacks returns the first line of the shown output that the output does not have, in this order; empty: it has them all. In a line … stands for
// any text, and the spaces between columns do not count. A line that is … alone stands for any lines, as between the others.
func lacks(out, shown string) string {
	lines := bufio.NewScanner(strings.NewReader(out))
	for want := range strings.Lines(shown) {
		pattern := strings.Join(strings.Fields(regexp.QuoteMeta(want)), " ")
		like := regexp.MustCompile("^" + strings.ReplaceAll(pattern, "…", ".*") + "$")
		found := pattern == "…"
		for !found && lines.Scan() {
			found = like.MatchString(strings.Join(strings.Fields(lines.Text()), " "))
		}
		if !found {
			return strings.TrimSpace(want)
		}
	}
	return ""
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
