package process_test

import (
	"errors"
	"os"
	"testing"

	"github.com/penstock/penstock/bench/process"
)

// TestCountCalls: a process that reads a line and writes it makes two calls at least.
func TestCountCalls(t *testing.T) {
	g := process.NewGroup()
	t.Cleanup(g.Close)
	c, err := g.Start(process.Spec{Name: "cat", Path: "/bin/cat", Args: []string{"cat"}})
	if err != nil {
		t.Fatal(err)
	}
	const lines = 50
	n, err := process.CountCalls(t.Context(), []int{c.Pid()}, func() error {
		for i := range lines {
			if err := c.Send(i); err != nil {
				return err
			}
			if _, err := c.Stdout(t.Context()); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, process.ErrNoStrace) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if n < 2*lines-2 || n > 3*lines { // the first and the last may be missing
		t.Errorf("%d calls for %d lines", n, lines)
	}
	reason := errors.New("enough")
	if _, err := process.CountCalls(t.Context(), []int{c.Pid()}, func() error { return reason }); !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
}
