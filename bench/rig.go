package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/network"
	"github.com/penstock/penstock/bench/process"
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
