package child_test

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/child"
)

const childName = "penstock-child-test"

func TestMain(m *testing.M) {
	child.Main(m, childName, func(args []string) error {
		if len(args) > 1 {
			return errors.New("too many arguments")
		}
		fmt.Println(args)
		return nil
	})
}

func TestMainIsAnotherProgram(t *testing.T) {
	for args, want := range map[string]string{"one": "[one]\n", "one two": "too many arguments\n"} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = append([]string{childName}, strings.Fields(args)...)
		out, err := cmd.CombinedOutput()
		if failed := len(cmd.Args) > 2; string(out) != want || (err != nil) != failed {
			t.Errorf("with %s: %q, %v; want %q", args, out, err, want)
		}
	}
}
