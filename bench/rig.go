package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/network"
	"github.com/penstock/penstock/bench/process"
)

// patience is Rig.Patience of a new rig.
const patience = 10 * time.Second

// Rig is a load and a server that it drives traffic to, through contestants that are
// started in between. It is not safe for concurrent use, except Close.
type Rig struct {
	// Patience is how long a child may take to say that it is ready, and a
	// contestant to let go of connections that have ended. NewRig sets it to
	// 10 s.
	Patience time.Duration

	setting contestant.Setting // its Group is the hosts' group
	hosts   *network.Hosts     // owned
	server  *process.Child
	load    *process.Child
	// accounts are the newest of the contestants that keep one.
	accounts map[*contestant.Contestant]*contestant.Account
	empty    map[*contestant.Contestant]int64 // memory of those without connections, in bytes
}

// NewRig starts a load and a sink on hosts, which the rig owns from here on, even if it fails. Of the
// setting it takes the program, Dir and Binaries; Group and Upstream are filled in. Close must be called.
func NewRig(ctx context.Context, hosts *network.Hosts, setting contestant.Setting) (*Rig, error) {
	r := &Rig{Patience: patience, hosts: hosts, setting: setting, accounts: make(map[*contestant.Contestant]*contestant.Account), empty: make(map[*contestant.Contestant]int64)}
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

// Close kills all that the rig started and waits until it is gone.
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
	m, err := c.Memory()
	if err != nil {
		c.Kill()
		return nil, r.blame(ctx, err, c)
	}
	r.accounts[c], r.empty[c] = account, m.RssAnon
	return c, nil
}

// Stop ends a contestant the polite way, or by force.
func (r *Rig) Stop(c *contestant.Contestant) {
	delete(r.accounts, c)
	delete(r.empty, c)
	_ = c.Stop(r.Patience) // however it ends
}

// serving starts the sink, and waits until it serves.
func (r *Rig) serving(ctx context.Context) (*process.Child, string, error) {
	const name = "the sink"
	p := &r.setting.Program
	c, err := r.hosts.Server.Start(p.Spec(name, p.Part, PartSink, strconv.Itoa(runtime.NumCPU()), r.hosts.ServerAt+":0"))
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.Patience, fmt.Errorf("%s did not start within %v", name, r.Patience))
	defer cancel()
	line, err := c.Stdout(ctx)
	if err != nil {
		return nil, "", contestant.Describe(err)
	}
	var l listening
	if err := json.Unmarshal([]byte(line), &l); err != nil {
		return nil, "", fmt.Errorf("bench: %s said %q: %w", name, line, err)
	}
	return c, l.Address, nil
}

// blame returns the cause of err: the end of ctx, the death of a child, or err itself,
// described.
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

// brokenError is the end of the rig itself: nothing more can be measured.
type brokenError struct{ error }

// Unwrap is for errors.Is and errors.As.
func (e brokenError) Unwrap() error { return e.error }

// broken reports whether err, or the end of ctx, is the end of measuring.
func broken(ctx context.Context, err error) bool {
	var b brokenError
	return ctx.Err() != nil || errors.As(err, &b)
}
