package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"

	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/origin"
	"github.com/penstock/penstock/bench/rival"
)

// The names of the parts that a Rig runs by calling its own program again.
const (
	PartOrigin = "origin"
	PartRival  = "rival"
	PartLoad   = "load"
)

// listening is the first line that a serving part prints.
type listening struct {
	Address string `json:"address"`
}

// RunPart is one part of a Rig; it runs until ctx is done or in ends, which is
// how it learns that the Rig is gone. upstream is where PartRival forwards to;
// the others ignore it. The program that a Rig runs must call it when asked
// to by the arguments that Program.Part gives.
func RunPart(ctx context.Context, part, upstream string, in io.Reader, out io.Writer) error {
	switch part {
	case PartLoad:
		return load.Serve(ctx, in, out)
	case PartOrigin:
		return serve(ctx, in, out, origin.Serve)
	case PartRival:
		return serve(ctx, in, out, func(ctx context.Context, l net.Listener) error {
			return rival.Serve(ctx, l, upstream)
		})
	}
	return fmt.Errorf("bench: no part %q", part)
}

// serve listens on a free port of loopback, says which, and serves it.
func serve(ctx context.Context, in io.Reader, out io.Writer, f func(context.Context, net.Listener) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	if err := json.NewEncoder(out).Encode(listening{l.Addr().String()}); err != nil {
		_ = l.Close()
		return err
	}
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in)
	}()
	return f(ctx, l)
}
