package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/handshake"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/network"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/reload"
	"github.com/penstock/penstock/bench/rival"
	"github.com/penstock/penstock/bench/sink"
)

// patience is the Rig.Patience of a new rig.
const patience = 10 * time.Second

// Rig is a load and a server. The load sends traffic to the server through contestants, which are started in
// between. A Rig is not safe for concurrent use, except for Close.
type Rig struct {
	// Patience is how long a child may take to be ready, and a contestant to forget ended connections. NewRig sets
	// it to 10 s.
	Patience time.Duration

	setting contestant.Setting // its Group is the hosts' group
	hosts   *network.Hosts     // owned
	server  *process.Child
	load    *process.Child
	// accounts has the last account of each contestant that keeps one.
	accounts map[*contestant.Contestant]*contestant.Account
}

// NewRig starts a load and a sink on hosts. The rig owns hosts from now on, even if NewRig fails. Of the setting,
// it uses the program, Dir and Binaries, and it sets Group and Upstream. Close must be called.
func NewRig(ctx context.Context, hosts *network.Hosts, setting contestant.Setting) (*Rig, error) {
	r := &Rig{Patience: patience, hosts: hosts, setting: setting, accounts: make(map[*contestant.Contestant]*contestant.Account)}
	r.setting.Group = hosts.Proxy
	var err error
	r.server, r.setting.Upstream, err = r.serving(ctx)
	if err == nil {
		r.load, err = hosts.Client.Start(setting.Program.Spec("the load", setting.Program.Part, PartLoad))
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close kills everything that the rig has started, and waits until it is gone.
func (r *Rig) Close() { r.hosts.Close() }

// Start adds a contestant.
func (r *Rig) Start(ctx context.Context, k *contestant.Kind) (*contestant.Contestant, error) {
	s := r.setting
	s.Listen, s.Patience = r.hosts.ProxyAt+":0", r.Patience
	c, err := k.Start(ctx, &s)
	if err != nil {
		return nil, err
	}
	account, err := c.Account(ctx)
	if err != nil {
		c.Kill()
		return nil, r.blame(ctx, err, c)
	}
	r.accounts[c] = account
	return c, nil
}

// Stop ends a contestant, by force if necessary.
func (r *Rig) Stop(c *contestant.Contestant) {
	delete(r.accounts, c)
	_ = c.Stop(r.Patience) // it may end in any way
}

// serving starts the sink, and waits until it serves.
func (r *Rig) serving(ctx context.Context) (*process.Child, string, error) {
	const name = "the sink"
	ctx, cancel := context.WithTimeoutCause(ctx, r.Patience, fmt.Errorf("%s did not start within %v", name, r.Patience))
	defer cancel()
	p := &r.setting.Program
	var l listening
	c, err := r.hosts.Server.Begin(ctx, p.Spec(name, p.Part, PartSink, strconv.Itoa(runtime.NumCPU()), r.hosts.ServerAt+":0"), nil, &l)
	return c, l.Address, contestant.Describe(err)
}

// blame returns the cause of err: the end of ctx, the end of a child, or err itself, shortened by Describe.
func (r *Rig) blame(ctx context.Context, err error, c *contestant.Contestant) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-c.Done():
		return c.Err()
	case <-r.server.Done():
		return brokenError{r.server.Err()}
	case <-r.load.Done():
		return brokenError{r.load.Err()}
	case <-time.After(culprit):
	}
	return contestant.Describe(err)
}

// brokenError means that the rig itself has failed, so nothing more can be measured.
type brokenError struct{ error }

// Unwrap is for errors.Is and errors.As.
func (e brokenError) Unwrap() error { return e.error }

// broken reports whether err or the end of ctx ends all measuring.
func broken(ctx context.Context, err error) bool {
	var b brokenError
	return ctx.Err() != nil || errors.As(err, &b)
}

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
