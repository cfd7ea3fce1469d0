package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
)

// A demoBalancer is penstock run in this process.
type demoBalancer struct {
	stops chan os.Signal
	once  sync.Once
	done  chan struct{}
	code  int // after done
	log   *demoLog
}

// startDemoBalancer starts it with a configuration. Its warnings are printed by the view. The
// caller calls stop.
func startDemoBalancer(e *cli.Env, file string, view *demoView) *demoBalancer {
	b := &demoBalancer{stops: make(chan os.Signal, 1), done: make(chan struct{}), log: &demoLog{view: view}}
	go func() {
		defer close(b.done)
		b.code = run(&cli.Env{
			Args:   []string{"run", "--config", file, "--log-level", "warn", "--drain-timeout", "2s"},
			Stdout: io.Discard, Stderr: b.log, Getenv: e.Getenv, Stops: b.stops,
		})
	}()
	return b
}

// address waits until the load balancer listens, and returns where.
func (b *demoBalancer) address(ctx context.Context, c *admin.Client) (string, error) {
	for {
		s, err := c.Status(ctx)
		if err == nil && len(s.Listeners) > 0 && len(s.Listeners[0].Addresses) > 0 {
			return reachable(s.Listeners[0].Addresses[0]), nil
		}
		select {
		case <-b.done:
			return "", fmt.Errorf("the load balancer did not start: %s", b.log.last())
		case <-ctx.Done():
			return "", errors.New("interrupted")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stop ends the load balancer and waits for its end.
func (b *demoBalancer) stop() error {
	b.once.Do(func() { b.stops <- syscall.SIGTERM })
	<-b.done
	if b.code != cli.ExitOK {
		return fmt.Errorf("the load balancer ended with exit code %d: %s", b.code, b.log.last())
	}
	return nil
}

// A demoLog passes the lines of a log to the view. It is safe for concurrent use.
type demoLog struct {
	view *demoView

	mu      sync.Mutex
	partial []byte
	line    string // the last one
}

// Write takes pieces of lines.
func (l *demoLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, p...)
	for {
		line, rest, found := bytes.Cut(l.partial, []byte("\n"))
		if !found {
			return len(p), nil
		}
		l.line = withoutTime(string(line))
		l.view.print("        " + l.line + "\n")
		l.partial = rest
	}
}

// last returns the last line.
func (l *demoLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.line
}

// withoutTime removes the time from a line of the log.
func withoutTime(line string) string {
	if strings.HasPrefix(line, "time=") {
		if _, rest, found := strings.Cut(line, " "); found {
			return rest
		}
	}
	return line
}
