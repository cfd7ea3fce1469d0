package page

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/software"
)

// A howto is the section of docs/reload.md that goes through an incident, with addresses of this machine.
type howto struct {
	testing.TB
	file     string   // its configuration
	commands []string // those that are not typed yet
	dir      string   // where they are typed
	env      []string
}

// readHowto reads the section, and writes its file. Addresses of the page are replaced by others.
func readHowto(t testing.TB, addresses map[string]string) *howto {
	t.Helper()
	text, err := os.ReadFile("../../../docs/reload.md")
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## A slow endpoint, and a noisy source\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for from, to := range addresses {
		if !strings.Contains(section, from) {
			t.Fatalf("docs/reload.md does not name %s", from)
		}
		section = strings.ReplaceAll(section, from, to)
	}
	h := &howto{TB: t, dir: software.Dir(t, nil)}
	for _, block := range regexp.MustCompile("(?ms)^```(yaml|sh)\n(.*?)^```$").FindAllStringSubmatch(section, -1) {
		if block[1] == "yaml" {
			h.file = block[2]
			continue
		}
		for line := range strings.Lines(block[2]) {
			command, _, _ := strings.Cut(line, " #")
			h.commands = append(h.commands, strings.TrimSpace(command))
		}
	}
	must(t, os.WriteFile(filepath.Join(h.dir, "penstock.yaml"), []byte(h.file), 0o600))
	run := filepath.Join(h.dir, "run") // of its user alone, as a session of systemd has it
	must(t, os.Mkdir(run, 0o700))
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasPrefix(name, "PENSTOCK_") && name != "RUNTIME_DIRECTORY" {
			h.env = append(h.env, v)
		}
	}
	h.env = append(h.env, "XDG_RUNTIME_DIR="+run, "PATH="+build(t)+":"+os.Getenv("PATH"))
	return h
}

// next returns the next command for a shell, which begins as the test expects.
func (h *howto) next(begin string) *exec.Cmd {
	h.Helper()
	if len(h.commands) == 0 || !strings.HasPrefix(h.commands[0], begin) {
		h.Fatalf("docs/reload.md has %q where the test has %q", h.commands, begin)
	}
	cmd := exec.Command("sh", "-c", "exec "+h.commands[0])
	cmd.Dir, cmd.Env = h.dir, h.env
	h.commands = h.commands[1:]
	return cmd
}

// types types the next command, and returns its output, in which each pattern is found.
func (h *howto) types(begin string, patterns ...string) string {
	h.Helper()
	out, err := h.next(begin).CombinedOutput()
	if err != nil {
		h.Fatalf("%s: %v\n%s", begin, err, out)
	}
	for _, p := range patterns {
		if !regexp.MustCompile("(?m)" + p).Match(out) {
			h.Errorf("%s does not say %s:\n%s", begin, p, out)
		}
	}
	return string(out)
}
