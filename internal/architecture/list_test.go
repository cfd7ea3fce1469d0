package architecture

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
)

// root is the module's directory, seen from this package's.
const root = "../.."

// listed is what the tests read of go list's answer.
type listed struct {
	Dir          string
	ImportPath   string
	Name         string
	Export       string
	Standard     bool
	Imports      []string
	Deps         []string
	TestImports  []string
	XTestImports []string
}

// everything is all packages of the four modules.
var everything = []string{"./...", "./proxy/...", "./bench/...", "./lane/..."}

// built is the packages that are built for an operating system: on others than Linux the
// library alone.
func built(goos string) []string {
	if goos == "linux" {
		return everything
	}
	return everything[:1]
}

// list runs go list for an operating system on amd64, in the workspace. cgo is off, so that
// the answer is the same on every machine.
func list(t *testing.T, goos string, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=Dir,ImportPath,Name,Export,Standard,Imports,Deps,TestImports,XTestImports"}, args...)...)
	cmd.Dir = root
	cmd.Env = append(workspace(t), "GOOS="+goos, "GOARCH=amd64", "CGO_ENABLED=0", "GOFLAGS=")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	var packages []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		switch err := d.Decode(&p); err {
		case nil:
			packages = append(packages, p)
		case io.EOF:
			return packages
		default:
			t.Fatalf("go list %s: %v", strings.Join(args, " "), err)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b := must.Get(os.ReadFile(root + "/" + name))(t)
	return string(b)
}

// workspace returns the environment of go commands that work on all modules.
func workspace(t *testing.T) []string {
	t.Helper()
	work := must.Get(filepath.Abs(filepath.Join(root, "go.work")))(t)
	return append(os.Environ(), "GOWORK="+work, "GOFLAGS=")
}
