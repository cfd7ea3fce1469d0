package pool_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/pool"
)

// TestMutants builds the package once without each of its safety mechanisms
// (mutant.go lists them) and expects the ownership stress to fail within three
// minutes. CI runs it with
//
//	PENSTOCK_MUTANTS=1 go test -timeout 20m -v -run '^TestMutants$' ./pool
//
// and a single mutant by hand with
//
//	PENSTOCK_STRESS=55s go test -timeout 60s -tags penstock_mutant_nobarrier -run '^TestOwnershipStress$' ./pool
func TestMutants(t *testing.T) {
	if os.Getenv("PENSTOCK_MUTANTS") == "" {
		t.Skip("takes minutes; set PENSTOCK_MUTANTS=1")
	}
	files, err := filepath.Glob("mutant_no*.go")
	if err != nil {
		t.Fatal(err)
	}
	if runtime.NumCPU() < 2 {
		t.Skip("takes two cores: on one, no load overtakes another thread's store")
	}
	if len(pool.Variants()) < 2 {
		t.Skip("shards have no owners in this build, or the kernel refuses membarrier(2)")
	}
	n := 0
	for _, file := range files {
		name := strings.TrimSuffix(file, ".go")
		if name == "mutant_none" {
			continue
		}
		n++
		t.Run(strings.TrimPrefix(name, "mutant_"), func(t *testing.T) { kill(t, "penstock_"+name) })
	}
	if n == 0 {
		t.Error("no mutants found")
	}
	t.Run("none", survive)
}

// kill expects the stress to fail in the build with the tag. The rarest failure (nopin) takes
// 20 s on average, more than 55 s once in twenty runs: there are three.
func kill(t *testing.T, tag string) {
	begin := time.Now()
	var out string
	for range 3 {
		var err error
		if out, err = stressed(t, "55s", "-tags", tag); err != nil {
			t.Logf("found after %.1f s: %s", time.Since(begin).Seconds(), complaint(out))
			return
		}
	}
	t.Fatalf("the stress did not notice\n%s", out)
}

// survive expects the stress to pass in the correct build: so it is not the
// stress itself that kills the others.
func survive(t *testing.T) {
	if out, err := stressed(t, "20s"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// stressed builds the test binary and runs the stress for a time, less than a minute.
func stressed(t *testing.T, d string, flags ...string) (string, error) {
	binary := filepath.Join(t.TempDir(), "stress.test")
	build := exec.Command("go", append(append([]string{"test", "-c", "-o", binary}, flags...), ".")...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(binary, "-test.run", "^TestOwnershipStress$", "-test.timeout", "60s")
	cmd.Env = append(os.Environ(), "PENSTOCK_STRESS="+d, "GOTRACEBACK=single")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// complaint returns the line of the output that has the failure.
func complaint(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "episode") || strings.Contains(line, "panic:") || strings.Contains(line, "fatal error:") {
			return strings.TrimSpace(line)
		}
	}
	return out
}
