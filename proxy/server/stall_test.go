package server_test

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/proxy/server"
)

// TestStalledLoopIsLogged: a stalled loop is logged once, with its end. A loop that is late by
// less than a second is not.
func TestStalledLoopIsLogged(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		var took time.Duration
		var mu sync.Mutex // guards both: the race detector does not know that time orders accesses
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			server.WatchStalls(slog.New(slog.NewTextHandler(&lockedWriter{&mu, &text}, nil)), func(ctx context.Context) error {
				mu.Lock()
				wait := took
				took = 0
				mu.Unlock()
				select {
				case <-time.After(wait):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}, stop)
		}()
		pass := func(turn time.Duration) string {
			mu.Lock()
			took = turn
			text.Reset()
			mu.Unlock()
			time.Sleep(5500 * time.Millisecond)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return text.String()
		}
		if log := pass(900 * time.Millisecond); log != "" {
			t.Errorf("for a loop that is late by less than a second: %s", log)
		}
		log := pass(3 * time.Second)
		if strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, "event loop turns again") || !strings.Contains(log, "duration=3s") {
			t.Errorf("for a loop that took 3 s: %s", log)
		}
		mu.Lock()
		took = time.Hour
		mu.Unlock()
		time.Sleep(2 * time.Second)
		close(stop)
		<-done
	})
}

// lockedWriter writes under a lock.
type lockedWriter struct {
	mu *sync.Mutex
	to io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}
