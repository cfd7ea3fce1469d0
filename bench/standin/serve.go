// Package standin replaces penstock run and penstock proxy in the tests of packages that measure them. It is a
// part of the test binaries, because tests would have to find a separate program first.
package standin

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/rollback"
	"github.com/penstock/penstock/proxy/server"
	"github.com/penstock/penstock/relay"
)

// Serve serves the configuration in a file, for at most clients clients, as penstock run does. It logs lines of
// JSON to standard error, and serves the status at the file's admin address. When ctx has ended, it waits for the
// sessions and returns.
func Serve(ctx context.Context, file string, clients int) error {
	cfg, problems := config.Load(file, os.LookupEnv)
	if len(problems) > 0 {
		return problems[0]
	}
	return serve(ctx, cfg, relay.EngineAuto, clients, nil)
}

// Proxy is [Serve] with four of the flags of penstock proxy. change may change each summary before it is sent. It
// may be nil.
func Proxy(ctx context.Context, args []string, clients int, change func(*admin.Summary)) error {
	flags := map[string]string{"--engine": "auto"}
	for i := 0; i+1 < len(args); i += 2 {
		flags[args[i]] = args[i+1]
	}
	engine, err := relay.ParseEngine(flags["--engine"])
	if err != nil {
		return err
	}
	text := fmt.Appendf(nil, `
admin: {bind: %q}
listeners: [{name: proxy, bind: %q, upstream: proxy}]
upstreams: [{name: proxy, endpoints: [%q], health_check: off, outlier_detection: off, circuit_breaker: off}]
`, flags["--admin"], flags["--listen"], flags["--to"])
	cfg, problems := config.Parse("flags", text, os.LookupEnv)
	if len(problems) > 0 {
		return problems[0]
	}
	return serve(ctx, cfg, engine, clients, change)
}

func serve(ctx context.Context, cfg *config.Config, engine relay.Engine, clients int, change func(*admin.Summary)) error {
	var b *server.Server
	opened := make(chan struct{})                   // closed once b is set, or cannot be set any more
	if cfg.Admin != nil && !cfg.Admin.Bind.Auto() { // it answers as soon as a listener is logged
		end, err := Admin(cfg.Admin.Bind.String(), func() (s admin.Summary) {
			if <-opened; b == nil {
				return s
			}
			if s = b.Status().Summary; change != nil {
				change(&s)
			}
			return s
		})
		if err != nil {
			return err
		}
		defer end()
	}
	var err error
	b, err = server.Open(ctx, cfg, server.Options{
		MaxConnections: clients, Loops: 2, Engine: engine, Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	})
	close(opened)
	if err != nil {
		return err
	}
	return b.Serve(ctx)
}

// Admin serves a status with a summary at an admin address, until end is called.
func Admin(bind string, summary func() admin.Summary) (end func(), err error) {
	s := admin.New(admin.Config{Balancer: &balancer{summary: summary}, Reloader: reloader{}})
	move, err := s.Prepare(context.Background(), admin.Access{Bind: bind})
	if err == nil {
		move.Commit()
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx)
	}, err
}

// A balancer has only a summary. Nothing else can be asked for.
type balancer struct {
	admin.Balancer
	summary func() admin.Summary
}

func (b *balancer) Status() admin.Status {
	return admin.Status{State: admin.Serving, Summary: b.summary()}
}

// A reloader has one generation.
type reloader struct{ admin.Reloader }

func (reloader) Generations() rollback.Status { return rollback.Status{Current: 1} }
