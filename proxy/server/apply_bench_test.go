package server_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/server"
)

// A fleet is a configuration of many listeners, each with its own upstream.
type fleet struct {
	listeners, each int                    // endpoints
	idle            int                    // seconds, of each listener
	at              func(upstream int) int // the port of an upstream's endpoints
}

func (f fleet) text() string {
	var b strings.Builder
	b.WriteString("listeners:\n")
	for i := range f.listeners {
		fmt.Fprintf(&b, "  - {name: l%d, bind: \"127.0.0.1:0\", upstream: u%d, allow: [\"127.0.0.0/8\"], timeouts: {idle: %ds}, limits: {per_source_per_second: 1000}}\n",
			i, i, f.idle)
	}
	b.WriteString("upstreams:\n")
	for i := range f.listeners {
		fmt.Fprintf(&b, "  - {name: u%d, on_removed: keep, health_check: {interval: 24h, fast_interval: 24h}, endpoints: [", i)
		for n := i * f.each; n < (i+1)*f.each; n++ {
			fmt.Fprintf(&b, "\"127.%d.%d.%d:%d\", ", 1+n>>14, n>>7&127, 1+n&127, f.at(i))
		}
		b.WriteString("]}\n")
	}
	return b.String()
}

func (f fleet) config(tb testing.TB) *config.Config {
	tb.Helper()
	return configOf(tb, f.text())
}

func configOf(tb testing.TB, text string) *config.Config {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "penstock.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	cfg, problems := config.Load(path, os.LookupEnv)
	if len(problems) > 0 {
		tb.Fatal(problems[0])
	}
	return cfg
}

func servingWith(tb testing.TB, cfg *config.Config, o server.Options) (s *server.Server, stop func()) {
	tb.Helper()
	s, err := server.Open(context.Background(), cfg, o)
	must(tb, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	return s, func() {
		cancel()
		<-done
	}
}
