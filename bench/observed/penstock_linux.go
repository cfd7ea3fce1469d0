package observed

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/socket"
)

// What proxy.Config.Loops is.
const (
	byDefault = 0
	noLoops   = -1
)

// penstock serves as penstock proxy does with its default settings, but for the
// loops.
func (o *observer) penstock(ctx context.Context, upstream string, most, loops int) error {
	listen, err := socket.Parse("127.0.0.1:0")
	if err != nil {
		return err
	}
	to, err := socket.Parse(upstream)
	if err != nil {
		return err
	}
	s, err := proxy.Open(ctx, &proxy.Config{
		Listen: []socket.Address{listen}, To: []socket.Address{to}, MaxConnections: most, Loops: loops,
		ConnectTimeout: connectTimeout, IdleTimeout: idleTimeout, HalfCloseTimeout: halfClosed,
		Log: slog.New(slog.NewJSONHandler(&heard{say: o.listening}, nil)),
	})
	if err != nil {
		return err
	}
	o.summary = s.Summary
	return s.Serve(ctx)
}

// heard is a log of which only the address of the listener is of interest.
type heard struct{ say func(address string) }

// Write takes one line, and whoever logs waits for it.
func (h *heard) Write(line []byte) (int, error) {
	var said struct{ Msg, Address string }
	if json.Unmarshal(line, &said) == nil && said.Msg == "listening" {
		h.say(said.Address)
	}
	return len(line), nil
}
