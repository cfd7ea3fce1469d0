package syscalls

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/process"
)

// The events of perf, by its names: the tracepoint that every system call passes, and misses
// of the processor's last cache.
const (
	everyCall   = "raw_syscalls:sys_enter"
	cacheMisses = "cache-misses"
)

// perf counts in the kernel, and costs the processes little.
type perf struct {
	event   string
	child   *process.Child
	control *os.File // commands to it; owned here
	ack     *os.File // its answers; owned here
	answers *bufio.Reader
}

// perfOf counts events of a name.
func perfOf(event string) attach {
	return func(ctx context.Context, g *process.Group, path string, pids []int) (tracer, error) {
		return attachPerf(ctx, g, path, pids, event)
	}
}

// attachPerf starts perf stat, which opens a counter for every thread, and for the threads
// that these make. The counters count once perf has got the command to enable them and has
// acknowledged it (perf-stat(1), --control).
func attachPerf(ctx context.Context, g *process.Group, path string, pids []int, event string) (tracer, error) {
	commands, control, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer commands.Close()
	ack, answers, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, control.Close())
	}
	defer answers.Close()
	p := &perf{event: event, control: control, ack: ack, answers: bufio.NewReader(ack)}
	p.child, err = g.Start(process.Spec{
		Name: "perf", Path: path, Files: []*os.File{commands, answers},
		Args: []string{"perf", "stat", "-x", ",", "-e", event, "-D", "-1", "--control", "fd:3,4", "-p", list(pids)},
		Env:  append(os.Environ(), "LC_ALL=C"),
	})
	if err == nil {
		answers.Close() // so that its end is the end of answers
		err = p.command(ctx, "enable")
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *perf) close() {
	_ = p.control.Close()
	_ = p.ack.Close()
}

// command sends perf a command and waits for the acknowledgement.
func (p *perf) command(ctx context.Context, command string) error {
	defer context.AfterFunc(ctx, func() { _ = p.ack.SetReadDeadline(time.Unix(1, 0)) })()
	if _, err := io.WriteString(p.control, command+"\n"); err != nil {
		return p.blame(ctx, err)
	}
	// The answer ends in a newline and, from some versions, a zero byte.
	answer, err := p.answers.ReadString('\n')
	if err != nil {
		return p.blame(ctx, err)
	}
	if strings.Trim(answer, "\x00\n") != "ack" {
		return fmt.Errorf("perf answers %q to %s", answer, command)
	}
	return nil
}

// blame prefers an error message of perf to the error that its silence led to.
func (p *perf) blame(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	said, end := remaining(ctx, p.child)
	first := ""
	for _, line := range said { // the error, or the line before many lines of advice
		if text, found := strings.CutPrefix(line, "Error:"); found && strings.TrimSpace(text) != "" {
			return errors.New(strings.TrimSpace(text))
		}
		first = cmp.Or(first, strings.TrimSpace(line))
	}
	if first != "" {
		return errors.New(first)
	}
	return errors.Join(end, err)
}

func (p *perf) detach(ctx context.Context) (int64, error) {
	if err := p.command(ctx, "disable"); err != nil {
		return 0, err
	}
	if err := p.child.Signal(syscall.SIGINT); err != nil {
		return 0, err
	}
	said, err := remaining(ctx, p.child)
	if err != nil {
		return 0, err
	}
	return parsePerf(said, p.event)
}

// parsePerf finds the count: "452614,,raw_syscalls:sys_enter,...". Processes
// that did not run at all are "<not counted>". An event of user space alone, which is
// all that perf may count for some, has ":u" behind its name.
func parsePerf(said []string, event string) (int64, error) {
	for _, line := range said {
		f := strings.Split(line, ",")
		if len(f) < 3 || strings.TrimSuffix(f[2], ":u") != event {
			continue
		}
		switch f[0] {
		case "<not counted>":
			return 0, nil
		case "<not supported>":
			return 0, fmt.Errorf("%s is not supported here", event)
		}
		return strconv.ParseInt(f[0], 10, 64)
	}
	return 0, fmt.Errorf("perf says nothing of %s: %q", event, said)
}

// remaining returns the remaining lines of a child's standard error, until it ends. The error
// is of ctx.
func remaining(ctx context.Context, child *process.Child) (said []string, err error) {
	for {
		line, err := child.Stderr(ctx)
		var ended *process.EndedError
		switch {
		case errors.As(err, &ended):
			return said, nil
		case err != nil:
			return said, err
		}
		said = append(said, line)
	}
}

// list writes process ids with commas.
func list(pids []int) string {
	text := make([]string, len(pids))
	for i, pid := range pids {
		text[i] = strconv.Itoa(pid)
	}
	return strings.Join(text, ",")
}
