package standin

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/balancer"
	"github.com/penstock/penstock/proxy/config"
)

// Serve is what the process has to do as a load balancer with the configuration of a file,
// for so many clients at most: it logs lines of JSON to standard error, and answers SIGUSR1
// as [Answer] does. It returns when ctx has ended, and the sessions after it.
func Serve(ctx context.Context, file string, clients int) error {
	cfg, problems := config.Load(file, os.LookupEnv)
	if len(problems) > 0 {
		return problems[0]
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1) // who hears that it listens may ask at once
	b, err := balancer.Open(ctx, cfg, balancer.Options{Server: &proxy.Config{
		MaxConnections: clients, Loops: 2, Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	}})
	if err != nil {
		return err
	}
	go Answer(asked, b.Summary)
	return b.Serve(ctx)
}

// Answer writes a summary to standard output each time that it is asked, for as long as the
// process lives.
func Answer(asked <-chan os.Signal, summary func() proxy.Summary) {
	for range asked {
		_ = json.NewEncoder(os.Stdout).Encode(summary())
	}
}
