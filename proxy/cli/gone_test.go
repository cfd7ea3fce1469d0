package cli

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// A writerCmd writes to its standard output, or fails by a connection whose peer has gone.
type writerCmd struct {
	Connection bool `name:"connection"`
}

// Run writes until that fails.
func (c *writerCmd) Run(e *Env) error {
	if c.Connection {
		return &net.OpError{Op: "write", Net: "unix", Err: os.NewSyscallError("write", syscall.EPIPE)}
	}
	for {
		if _, err := fmt.Fprintln(e.Stdout, "a line"); err != nil {
			return fmt.Errorf("lane: %w", err)
		}
	}
}

// TestReaderHasGone: a command ends without a message when the reader of its standard output has gone, as others end by SIGPIPE. A
// connection that is broken is an error.
func TestReaderHasGone(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		text string
	}{{[]string{"write"}, ExitPipe, ""}, {[]string{"--help"}, ExitPipe, ""}, {[]string{"write", "--connection"}, ExitError, "broken pipe"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		defer w.Close()
		var stderr strings.Builder
		p := Program{Name: "program", Commands: &struct {
			Write writerCmd `cmd:""`
		}{}}
		code := p.Run(&Env{Args: c.args, Stdout: w, Stderr: &stderr, Getenv: os.Getenv})
		if code != c.code || (c.text == "") != (stderr.Len() == 0) || !strings.Contains(stderr.String(), c.text) {
			t.Errorf("%q: exit code %d, %q", c.args, code, stderr.String())
		}
	}
}
