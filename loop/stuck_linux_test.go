package loop_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/loop"
)

// TestStuckHandlers: a handler that never waits is reported while it runs, with its stack, once; handlers that wait
// are not. It runs alone, for a report may have handlers of other servers.
func TestStuckHandlers(t *testing.T) {
	for _, callbacks := range []bool{false, true} {
		t.Run(fmt.Sprintf("callbacks %t", callbacks), func(t *testing.T) {
			reports := make(chan string, 10)
			var enough atomic.Bool
			s := startServer(t, &loop.Server{
				Loops:     1,
				Callbacks: callbacks,
				Stuck: func(took time.Duration, stacks []byte) {
					reports <- fmt.Sprint(took >= time.Second, "\n", string(stacks))
				},
				Handle: func(c *loop.Conn) error {
					if line, err := c.Next(1); err != nil || !bytes.Equal(line, []byte("s")) {
						return err
					}
					spins(&enough)
					return nil
				},
			})
			s.dial(t) // its handler waits
			_, _ = io.WriteString(s.dial(t), "s")
			select {
			case at := <-reports:
				if !strings.HasPrefix(at, "true\n") || !strings.Contains(at, "loop_test.spins") || strings.Count(at, "goroutine ") > 2 {
					t.Error(at)
				}
			case <-time.After(patience):
				t.Error("it was not reported")
			}
			enough.Store(true)
			if err := s.end(t); err != nil {
				t.Error(err)
			}
			if n := len(reports); n > 0 {
				t.Errorf("%d more reports", n)
			}
		})
	}
}

//go:noinline
func spins(enough *atomic.Bool) {
	for !enough.Load() {
	}
}
