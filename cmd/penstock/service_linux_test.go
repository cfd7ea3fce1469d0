package main

import (
	"context"
	"log/slog"
	"os"
	"syscall"
	"testing"
)

// TestEarlyWish: a summary that is asked for before there is a server, though it listens
// already, comes when there is one.
func TestEarlyWish(t *testing.T) {
	asks, out := make(chan os.Signal), newOutput()
	log := slog.New(slog.DiscardHandler)
	s := &service{form: "json", log: log, patient: log}
	err := s.run(&env{stdout: out, asks: asks}, func(_ context.Context, opened chan<- server) error {
		asks <- syscall.SIGUSR1
		opened <- new(paperBalancer)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if _, err := out.wait(`"connections"`, 1, ctx.Done()); err != nil {
			t.Error(err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
