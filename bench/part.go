package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/handshake"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/reload"
	"github.com/penstock/penstock/bench/rival"
	"github.com/penstock/penstock/bench/sink"
)

// The names of the parts, besides contestant.PartRival, that a Rig runs by starting its own program again.
const (
	PartSink = "sink"
	PartLoad = "load"
)

// listening is the first line that a serving part prints.
type listening struct {
	Address string `json:"address"`
}

// RunPart runs one part of a Rig. It runs until ctx is done or in ends: the end of in means that the Rig is gone.
// The arguments of PartSink are the number of threads. The arguments of contestant.PartRival are the address to
// forward to, and "splice", "copy" or "relay". Both may have one more argument, the address to listen at. Other
// parts have no arguments. The program that a Rig starts must call RunPart if its arguments begin with
// Program.Part.
func RunPart(ctx context.Context, part string, args []string, in io.Reader, out io.Writer) error {
	switch part {
	case PartLoad:
		return load.Serve(ctx, in, out)
	case PartSink:
		return runSink(ctx, args, in, out)
	case contestant.PartRival:
		return runRival(ctx, args, in, out)
	case handshake.PartClient:
		return handshake.RunPart(ctx, in, out)
	case endpoint.Part:
		return endpoint.RunPart(ctx, in, out)
	case endpoint.PartLoad:
		return endpoint.RunLoad(ctx, in, out)
	}
	if reload.IsPart(part) {
		return reload.RunPart(ctx, part, in, out)
	}
	return fmt.Errorf("bench: no part %q", part)
}

func runSink(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	args, listen := listenAt(args, 1)
	threads, err := strconv.Atoi(strings.Join(args, " "))
	if err != nil || threads < 1 {
		return fmt.Errorf("bench: %s takes a number of threads, not %q", PartSink, args)
	}
	return serve(ctx, in, out, listen, func(ctx context.Context, l net.Listener) error {
		return sink.Serve(ctx, l.(*net.TCPListener), threads)
	})
}

func runRival(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	forms := map[string]func(context.Context, net.Listener, string) error{
		contestant.RivalSplice: rival.Serve, contestant.RivalCopy: rival.ServeCopying, contestant.RivalRelay: rival.ServeRelay,
	}
	args, listen := listenAt(args, 2)
	run := forms[strings.Join(args[min(1, len(args)):], " ")]
	if run == nil {
		return fmt.Errorf("bench: %s takes an address and %s, %s or %s, not %q", contestant.PartRival, contestant.RivalSplice, contestant.RivalCopy, contestant.RivalRelay, args)
	}
	return serve(ctx, in, out, listen, func(ctx context.Context, l net.Listener) error { return run(ctx, l, args[0]) })
}

// listenAt splits the address to listen at from the arguments after the first n. Without an address, it returns a
// free port of loopback.
func listenAt(args []string, n int) (before []string, address string) {
	if len(args) == n+1 {
		return args[:n], args[n]
	}
	return args, "127.0.0.1:0"
}

// serve listens, prints the address, and serves it with f.
func serve(ctx context.Context, in io.Reader, out io.Writer, listen string, f func(context.Context, net.Listener) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := net.Listen("tcp", listen)
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
