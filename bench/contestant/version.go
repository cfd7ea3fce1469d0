package contestant

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// probePatience is how long a program may take to print its version or a test result.
const probePatience = 5 * time.Second

// versions find the version in the output of each program.
var versions = map[string]*regexp.Regexp{
	"haproxy": regexp.MustCompile(`version (\S+)`),
	"nginx":   regexp.MustCompile(`nginx/(\S+)`),
	"envoy":   regexp.MustCompile(`version: [0-9a-f]+/([^/\s]+)`),
}

// Version returns the version of the kind's program. It runs the program for 5 s at most. The version is empty if
// the kind is this program, if the program is missing, or if it prints no version.
func (k *Kind) Version(ctx context.Context, s *Setting) string {
	v, ok := k.starter.(*server)
	if !ok {
		return ""
	}
	path, err := v.path(s)
	if err != nil {
		return ""
	}
	flag := "-v"
	if v.binary == "envoy" {
		flag = "--version"
	}
	said, _ := probe(ctx, path, flag)
	if found := versions[v.binary].FindSubmatch(said); found != nil {
		return string(found[1])
	}
	return ""
}

// probe runs a program that ends soon by itself, and returns what it has written to standard output and standard
// error. After 5 s, or when ctx ends, it kills the program and all processes that it has started. It does not wait
// for processes that live on with the output open.
func probe(ctx context.Context, path string, args ...string) ([]byte, error) {
	slow := fmt.Errorf("the process did not end within %v", probePatience)
	ctx, cancel := context.WithTimeoutCause(ctx, probePatience, slow)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = probePatience / 10
	said, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return said, fmt.Errorf("%s %s: %w", filepath.Base(path), args[0], err)
	}
	return said, nil
}
