package cli_test

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/cli"
)

// TestHangups: SIGHUP stops the program until it wants reloads, and at no moment in between does it end the process.
func TestHangups(t *testing.T) {
	hangup := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Error(err)
		}
	}
	got := func(what string, from <-chan os.Signal) {
		t.Helper()
		select {
		case <-from:
		case <-time.After(condition.Patience):
			t.Fatal(what)
		}
	}
	// When a program has ended, SIGHUP would end the test, even after it: another thread may still have one pending.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	for range 100 {
		e, release := cli.ProcessEnv("penstock")
		hangup()
		got("SIGHUP does not stop the program", e.Stops)
		began, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				default:
					hangup()
				}
				if n == 10 {
					close(began)
				}
			}
		}()
		<-began
		reloads := e.Reloads()
		got("SIGHUP does not reload", reloads)
		close(end)
		<-ended
		release()
	}
}
