package architecture

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
)

var updateLicences = flag.Bool("licences", false, "write the folder licenses")

// embedded are the licences of files of others that are in the program and come by no module.
var embedded = map[string]string{"uplot.txt": "proxy/internal/page/uplot.LICENSE"}

// TestLicences: the folder licenses has the licence and the notice of each module that the
// program is linked with, those of embedded files, and no other.
func TestLicences(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}", "./proxy/cmd/penstock")
	list.Dir, list.Env = root, workspace(t)
	out := must.Get(list.Output())(t)
	want := make(map[string]string)
	for name, path := range embedded {
		want[name] = read(t, path)
	}
	for line := range strings.Lines(string(out)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		if dir == "" || strings.HasPrefix(path, module) {
			continue
		}
		want[strings.ReplaceAll(path, "/", "_")+".txt"] = licence(t, dir)
	}
	folder := filepath.Join(root, "licenses")
	if *updateLicences {
		must.Do(t, os.RemoveAll(folder))
		must.Do(t, os.Mkdir(folder, 0o755))
		for name, text := range want {
			must.Do(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
		}
		return
	}
	const remedy = "go test ./internal/architecture -run TestLicences -licences"
	files := must.Get(os.ReadDir(folder))(t)
	for _, f := range files {
		if want[f.Name()] != read(t, filepath.Join("licenses", f.Name())) {
			t.Errorf("licenses/%s is not what the module has now: %s", f.Name(), remedy)
		}
		delete(want, f.Name())
	}
	for name := range want {
		t.Errorf("licenses/%s is missing: %s", name, remedy)
	}
}

// licence returns the licence of a module, and its notice if it has one.
func licence(t *testing.T, dir string) string {
	t.Helper()
	var text string
	for _, name := range []string{"LICENSE", "LICENSE.txt", "COPYING", "NOTICE"} {
		part, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			text += string(part)
		}
	}
	if text == "" {
		t.Errorf("%s has no licence", dir)
	}
	return text
}
