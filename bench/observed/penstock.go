package observed

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/server"
)

// penstock serves as penstock proxy does with its default settings.
func (o *observer) penstock(ctx context.Context, upstream string, most int) error {
	text := fmt.Appendf(nil, `
listeners: [{name: proxy, bind: "127.0.0.1:0", upstream: proxy}]
upstreams: [{name: proxy, endpoints: [%q], health_check: off, outlier_detection: off, circuit_breaker: off}]
`, upstream)
	cfg, problems := config.Parse("observed", text, func(string) (string, bool) { return "", false })
	if len(problems) > 0 {
		return problems[0]
	}
	log := new(addressLog)
	s, err := server.Open(ctx, cfg, server.Options{MaxConnections: most, Log: slog.New(slog.NewJSONHandler(log, nil))})
	if err != nil {
		return err
	}
	o.summary = s.Summary
	o.listening(log.address)
	return s.Serve(ctx)
}

// An addressLog is a log that keeps the address of the listener.
type addressLog struct{ address string }

// Write takes one line. The address is logged before server.Open returns, and once.
func (l *addressLog) Write(line []byte) (int, error) {
	var said struct{ Msg, Address string }
	if json.Unmarshal(line, &said) == nil && said.Msg == "listening" {
		l.address = said.Address
	}
	return len(line), nil
}
