package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/sockopt"
)

// demoCmd shows a load balancer at work while its endpoints die, drain and come back.
type demoCmd struct {
	Listen  string  `default:"127.0.0.1:0" placeholder:"ADDR" help:"Address of the load balancer. (default: a free port of loopback)"`
	Seconds float64 `default:"10" help:"Seconds that it takes. (default: ${default})"`
	Rate    int     `default:"100" help:"Clients in a second. (default: ${default})"`
	Stay    bool    `help:"Go on afterwards, until Ctrl-C."`
}

// Validate is called by kong once the flags are read.
func (c *demoCmd) Validate() error {
	_, err := sockopt.Parse(c.Listen)
	switch {
	case err != nil:
		return cli.Usagef("--listen: %w", err)
	case strings.HasPrefix(c.Listen, "unix:"):
		return cli.Usagef("--listen %s: the demo's clients use TCP", c.Listen)
	case !(c.Seconds >= 1) || c.Seconds > 3600:
		return cli.Usagef("--seconds %v: write 1 to 3600", c.Seconds)
	case c.Rate < 1 || c.Rate > 1000:
		return cli.Usagef("--rate %d: write 1 to 1000", c.Rate)
	}
	return nil
}

// Run runs the demo until its end, or until a signal.
func (c *demoCmd) Run(e *cli.Env) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		select {
		case <-e.Stops:
			stop()
		case <-ctx.Done():
		}
	}()
	dir, err := os.MkdirTemp("", "penstock-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := c.run(ctx, e, dir); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

// run shows the demo, with its files in dir.
func (c *demoCmd) run(ctx context.Context, e *cli.Env, dir string) error {
	d := &demo{demoCmd: c, e: e, view: newDemoView(e), socket: filepath.Join(dir, "admin.sock")}
	defer d.closeEndpoints()
	if err := d.openEndpoints(); err != nil {
		return err
	}
	file := filepath.Join(dir, "penstock.yaml")
	text := d.config()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	d.view.heading("A load balancer and three endpoints, by this configuration:")
	d.view.print(indent(text))
	balancer := startDemoBalancer(e, file, d.view)
	defer balancer.stop()
	var err error
	if d.admin, err = admin.NewClient("unix:" + d.socket); err != nil {
		return err
	}
	if d.address, err = balancer.address(ctx, d.admin); err != nil {
		return err
	}
	d.view.heading(fmt.Sprintf("%d clients in a second connect to %s:", c.Rate, d.address))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	d.view.show(ctx, e, d.admin, stop)
	return errors.Join(d.show(ctx), d.view.finish(), balancer.stop())
}

// demoNames are the names of the endpoints.
var demoNames = []string{"one", "two", "three"}

// A demo is a running demo.
type demo struct {
	*demoCmd
	e         *cli.Env
	view      *demoView
	socket    string // path of the admin socket
	endpoints []*demoEndpoint
	admin     *admin.Client
	address   string // of the listener
}

func (d *demo) openEndpoints() error {
	for _, name := range demoNames {
		ep := &demoEndpoint{name: name, address: "127.0.0.1:0"}
		if err := ep.open(); err != nil {
			return err
		}
		d.endpoints = append(d.endpoints, ep)
	}
	return nil
}

func (d *demo) closeEndpoints() {
	for _, ep := range d.endpoints {
		ep.kill()
	}
}

// config returns the configuration.
func (d *demo) config() string {
	var endpoints strings.Builder
	for _, ep := range d.endpoints {
		fmt.Fprintf(&endpoints, "      - {name: %s, address: %q}\n", ep.name, ep.address)
	}
	return fmt.Sprintf(`admin: {bind: %q}

listeners:
  - {name: web, bind: %q, upstream: app}

upstreams:
  - name: app
    endpoints:
%s    health_check: {interval: 1s, fast_interval: 250ms}
`, "unix:"+d.socket, d.Listen, endpoints.String())
}

// The course of the demo, as parts of its time.
const (
	demoKill   = 0.2
	demoReturn = 0.45
	demoDrain  = 0.6
	demoUndo   = 0.8
)

// A demoStep is an event of the course.
type demoStep struct {
	at   float64 // part of the time
	text string
	do   func() error
}

// steps returns the course.
func (d *demo) steps() []demoStep {
	drain := func(drain bool) error {
		return d.admin.DrainEndpoint(context.Background(), "app", "three", drain)
	}
	two := d.endpoints[1]
	return []demoStep{
		{demoKill, "endpoint two is killed: its sessions are reset, its port is closed", func() error { two.kill(); return nil }},
		{demoReturn, "endpoint two is back", two.open},
		{demoDrain, "penstock endpoint drain app three", func() error { return drain(true) }},
		{demoUndo, "penstock endpoint ready app three", func() error { return drain(false) }},
	}
}

// show runs the course under load, and reports the clients' results.
func (d *demo) show(ctx context.Context) error {
	load := startDemoLoad(d.address, d.Rate)
	defer load.stop()
	begin := time.Now()
	total := time.Duration(d.Seconds * float64(time.Second))
	steps := d.steps()
	ticks := time.NewTicker(demoTick)
	defer ticks.Stop()
	for stays := false; ; {
		select {
		case <-ctx.Done():
			return d.end(load, begin, stays)
		case <-ticks.C:
		}
		now := time.Since(begin)
		for len(steps) > 0 && now.Seconds() >= steps[0].at*d.Seconds {
			d.view.event(now, steps[0].text)
			if err := steps[0].do(); err != nil {
				return err
			}
			steps = steps[1:]
		}
		if now >= total && !stays {
			if !d.Stay {
				return d.end(load, begin, true)
			}
			stays = true
			d.view.printStay(d)
		}
		if s, err := d.admin.Status(ctx); err == nil {
			result := load.result()
			d.view.result(now, statesOf(&s), result.line())
		}
	}
}

// demoTick is the time between two results.
const demoTick = 250 * time.Millisecond

// end ends the load and reports its result. It fails if clients lost their sessions for
// another reason than the death of an endpoint.
func (d *demo) end(load *demoLoad, begin time.Time, complete bool) error {
	result := load.stop()
	if err := d.view.finish(); err != nil {
		return err
	}
	if !complete {
		return errors.New("interrupted")
	}
	d.view.printResult(&result, d.Stay)
	if d.Stay {
		return nil // its user may have done anything
	}
	at := begin.Add(time.Duration(demoKill * d.Seconds * float64(time.Second)))
	for _, f := range result.failed {
		if f.time.Before(at) || f.time.After(at.Add(demoTick+time.Second)) {
			return fmt.Errorf("a client lost its session: %w", f.err)
		}
	}
	return nil
}

// reachable returns an address to connect to for that of a listener: loopback for one on every
// address.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
