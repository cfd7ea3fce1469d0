package strace_test

import (
	"io"
	"os/exec"
	"testing"

	"github.com/penstock/penstock/internal/testutil/strace"
)

func TestCounter(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	exchange := func() {
		if _, err := io.WriteString(in, "hello"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
	}
	exchange()
	c := strace.Attach(t, cmd.Process.Pid, "write", "close")
	for range 7 {
		exchange()
	}
	if calls := c.Detach(t); calls["write"] != 7 || calls["read"] != 0 || calls["write failed"] != 0 {
		t.Errorf("counted %v", calls)
	}
}
