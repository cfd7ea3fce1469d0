package iperf3

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
)

// patience is for anything but the flow itself.
const patience = 30 * time.Second

// flow sends a flow through a contestant that is started for it. If around is not nil, it
// sends the flow by calling its argument.
func (b *comparison) flow(ctx context.Context, k *contestant.Kind, d time.Duration, around func(pids []int, during func() error) error) (f Figures, err error) {
	timed, cancel := context.WithTimeoutCause(ctx, d+patience, fmt.Errorf("not over within %v", d+patience))
	defer cancel()
	f, err = b.through(timed, k, d, around)
	switch {
	case ctx.Err() != nil:
		return f, context.Cause(ctx)
	case err != nil:
		return f, fmt.Errorf("%s: %w", k.Name, err)
	}
	return f, nil
}

func (b *comparison) through(ctx context.Context, k *contestant.Kind, d time.Duration, around func([]int, func() error) error) (f Figures, err error) {
	server, at, err := b.serve(ctx)
	if err != nil {
		return f, err
	}
	defer server.Kill()
	proxy, err := k.Start(ctx, &contestant.Setting{Group: b.Group, Program: b.Program, Upstream: at.String(), Dir: b.Dir})
	if err != nil {
		return f, err
	}
	defer proxy.Kill()
	pids, err := proxy.Pids()
	if err != nil {
		return f, err
	}
	if around == nil {
		around = func(_ []int, during func() error) error { return during() }
	}
	var result *result
	before, err := proxy.Usage()
	if err != nil {
		return f, err
	}
	if err := around(pids, func() (err error) {
		result, err = b.send(ctx, proxy.Address, d)
		return err
	}); err != nil {
		return f, err
	}
	after, err := proxy.Usage()
	if err != nil {
		return f, err
	}
	a, err := proxy.Settle(ctx)
	if err != nil {
		return f, err
	}
	f = result.figures(a)
	if used := after.Sub(before); len(pids) > 0 {
		f.CPUPerGB = report.Number(used.CPU.Seconds() / float64(f.Bytes) * 1e9)
		f.SwitchesPerGB = report.Number(float64(used.Switches) / float64(f.Bytes) * 1e9)
	}
	return f, nil
}

// serve starts a server for one test, and returns once it listens. It finds a port
// that was free a moment ago.
func (b *comparison) serve(ctx context.Context) (*process.Child, netip.AddrPort, error) {
	var at netip.AddrPort
	var err error
	closed := b.Group.Do(func() {
		var l net.Listener
		if l, err = net.Listen("tcp4", "127.0.0.1:0"); err == nil {
			at = l.Addr().(*net.TCPAddr).AddrPort()
			err = l.Close()
		}
	})
	if err := errors.Join(closed, err); err != nil {
		return nil, at, err
	}
	child, err := b.start("iperf3 -s", "-s", "-1", "-B", at.Addr().String(), "-p", strconv.Itoa(int(at.Port())))
	if err != nil {
		return nil, at, err
	}
	for pause := time.Millisecond; ; pause *= 2 {
		n, err := child.Listening(at)
		if err == nil && n > 0 {
			return child, at, nil
		}
		select {
		case <-time.After(pause):
		case <-child.Done():
			return nil, at, child.Err()
		case <-ctx.Done():
			child.Kill()
			return nil, at, context.Cause(ctx)
		}
	}
}

func (b *comparison) start(name string, args ...string) (*process.Child, error) {
	return b.Group.Start(process.Spec{Name: name, Path: b.Path, Args: append([]string{"iperf3"}, args...)})
}

// send runs the client: one flow to an address, without reports in between.
func (b *comparison) send(ctx context.Context, address string, d time.Duration) (*result, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	child, err := b.start("iperf3 -c", "-c", host, "-p", port, "-t", strconv.Itoa(seconds(d)), "-i", "0", "-J")
	if err != nil {
		return nil, err
	}
	defer child.Kill()
	var said strings.Builder
	for {
		line, err := child.Stdout(ctx)
		var ended *process.EndedError
		switch {
		case errors.As(err, &ended):
			return parse(said.String(), ended) // it reports errors by JSON, too
		case err != nil:
			return nil, err
		}
		said.WriteString(line + "\n")
	}
}

// seconds is a time for iperf3: whole seconds.
func seconds(d time.Duration) int { return max(int(d.Round(time.Second)/time.Second), 1) }

// figures are those of a flow, without the proxy's resource usage.
func (r *result) figures(a *contestant.Account) Figures {
	f := Figures{
		Bytes: r.End.Received.Bytes, BitsPerSecond: report.Number(r.End.Received.BitsPerSecond),
		Retransmits: r.End.Sent.Retransmits, Spliced: report.Unmeasured(),
		CPUPerGB: report.Unmeasured(), SwitchesPerGB: report.Unmeasured(),
	}
	if a != nil && a.Spliced+a.Copied > 0 {
		f.Spliced = report.Number(float64(a.Spliced) / float64(a.Spliced+a.Copied))
	}
	return f
}
