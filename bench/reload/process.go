package reload

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/proxy/admin"
)

// running is a `penstock run` that is measured.
type running struct {
	child *process.Child
	file  string
	admin *admin.Client
}

// begin starts a process with a configuration, and returns once its admin API answers.
func (s *Setup) begin(ctx context.Context, dir, text, socket string) (*running, error) {
	b := &running{file: filepath.Join(dir, "penstock.yaml")}
	if err := b.write(text); err != nil {
		return nil, err
	}
	var err error
	if b.admin, err = admin.NewClient("unix:" + socket); err != nil {
		return nil, err
	}
	b.child, err = s.Group.Start(s.Program.Penstock("penstock run", s.Program.Run, "--config", b.file, "--log", "json", "--log-level", "warn", "--turn-cpu"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("penstock run did not start within %v", startTime))
	defer cancel()
	for {
		if _, err := b.admin.Generations(ctx); err == nil {
			return b, nil
		}
		select {
		case <-b.child.Done():
			return nil, contestant.Describe(b.child.Err())
		case <-ctx.Done():
			b.child.Kill()
			return nil, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// startTime is how long a process with thousands of listeners may take to start.
const startTime = 30 * time.Second

// write replaces the configuration file atomically.
func (b *running) write(text string) error {
	next := b.file + ".new"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(next, b.file)
}

// summary gets a summary from the admin API.
func (b *running) summary(ctx context.Context) (*admin.Summary, error) {
	st, err := b.admin.Status(ctx)
	return &st.Summary, err
}

// overruns returns the number of turns, of all loops, that used a millisecond of CPU time.
func overruns(s *admin.Summary) (n int64) {
	for _, l := range s.Loops {
		n += l.Overruns
	}
	return n
}

// turns returns the number of long turns of all loops, and the longest turn.
func turns(s *admin.Summary) (long int64, longest time.Duration) {
	for _, l := range s.Loops {
		long += l.LongTurns
		longest = max(longest, time.Duration(l.LagMaxUs)*time.Microsecond)
	}
	return long, longest
}
