// Command metrics forwards connections to a target, logs its sessions by log/slog and exposes them to
// Prometheus: an example for relay.Hooks.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/penstock/penstock/relay"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "metrics:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("usage: metrics LISTEN-ADDRESS TARGET-ADDRESS METRICS-ADDRESS")
	}
	registry := prometheus.NewRegistry()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	slog.SetDefault(log)
	r, err := relay.New(&relay.Config{Hooks: newMetrics(registry).hooks(log)})
	if err != nil {
		return err
	}
	defer r.Close()
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	defer l.Close()
	go func() { log.Error("metrics", "error", http.ListenAndServe(args[2], handler(registry))) }()
	log.Info("listening", "address", l.Addr())
	return forward(context.Background(), r, l, args[1])
}

func handler(from prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(from, promhttp.HandlerOpts{})
}

// forward joins each client to the target until the listener is closed.
func forward(ctx context.Context, r *relay.Relay, l net.Listener, target string) error {
	for {
		client, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil { // for example no free descriptor (EMFILE), which passes
			slog.Error("accept", "error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		go func() {
			endpoint, err := net.Dial("tcp", target)
			if err != nil {
				slog.Error("connect", "error", err)
				client.Close()
				return
			}
			_, _ = r.Join(ctx, client, endpoint) // closes both; the hook has the results
		}()
	}
}
