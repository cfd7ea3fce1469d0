package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rolling"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/proxy/cli"
)

// rollingAnswer is how many bytes an answer's body has.
const rollingAnswer = 1 << 10

// Run measures, reports, and judges if it is asked to.
func (c *rollingCmd) Run(e *cli.Env) error {
	s, err := c.setup()
	if err != nil {
		return err
	}
	if c.PrintConfigs {
		return printBalancing(e, s.Kinds)
	}
	if s.Setting.Program, err = c.program(); err != nil {
		return err
	}
	d := &rollingDocument{benchHead: newBenchHead(e, rollingFormat), markdown: c.Format == "markdown"}
	if err := measureDocument(e, "rolling", c.JSON, d, func(ctx context.Context) error { return d.measure(ctx, e, s) }); err != nil {
		return err
	}
	if missed := d.missed(); c.Strict && len(missed) > 0 {
		return fmt.Errorf("rolling: missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

// setup returns the setup of the flags.
func (c *rollingCmd) setup() (s *rolling.Setup, err error) {
	count, away, rate, patience := 2, 4.0, 100.0, 10*time.Second
	if c.Quick {
		count, away, rate, patience = 1, 1, 50, 3*time.Second
	}
	s = &rolling.Setup{
		Setting: contestant.Setting{Binaries: c.Binary}, Named: len(c.Peers) > 0,
		Setup: rounds.Setup{Rounds: given(c.Rounds, count)}, Away: time.Duration(given(c.Seconds, away) * float64(time.Second)), Rate: given(c.Rate, rate),
		Timeout: given(c.Timeout, cli.Timeout(patience)).Duration(), Bytes: rollingAnswer,
	}
	s.Scenarios = rolling.Scenarios(s.Away)
	if len(c.Scenarios) > 0 {
		if s.Scenarios, err = rolling.Named(s.Scenarios, c.Scenarios); err != nil {
			return nil, cli.Usagef("--scenario: %w", err)
		}
	}
	if s.Kinds, err = c.kinds(); err != nil {
		return nil, cli.Usagef("--peers: %w", err)
	}
	return s, nil
}

// kinds are the contestants that the flags name.
func (c *rollingCmd) kinds() ([]*contestant.Kind, error) {
	all := contestant.Balancing(runtime.NumCPU())
	if len(c.Peers) == 0 {
		return all, nil
	}
	var known []string
	for _, k := range all {
		known = append(known, k.Name)
	}
	for _, name := range c.Peers {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("no contestant %q: write %s", name, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(all, func(k *contestant.Kind) bool { return !slices.Contains(c.Peers, k.Name) }), nil
}

// printBalancing prints the files, with endpoints that do not exist.
func printBalancing(e *cli.Env, kinds []*contestant.Kind) error {
	s := &contestant.Setting{Listen: "127.0.0.1:8000", Endpoints: []string{"127.0.0.1:8001", "127.0.0.1:8002"}}
	for _, k := range kinds {
		if _, err := fmt.Fprintf(e.Stdout, "# %s: %s\n%s\n\n", k.Name, k.About, strings.TrimSpace(k.Config(context.Background(), s))); err != nil {
			return err
		}
	}
	return nil
}

// measure has it all happen.
func (d *rollingDocument) measure(ctx context.Context, e *cli.Env, s *rolling.Setup) (err error) {
	if s.Setting.Dir, err = os.MkdirTemp("", "penstock-rolling-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.Setting.Dir)
	s.Setup = inRounds(e, d.group(), s.Rounds)
	defer s.Group.Close()
	announce(e, "Proxies, endpoints and clients, in processes of their own")
	d.Report, err = rolling.Measure(ctx, *s)
	return err
}

// missed lists where a peer loses fewer clients.
func (d *rollingDocument) missed() (all []string) {
	for _, s := range d.Standings {
		if s.Verdict == report.Missed {
			all = append(all, fmt.Sprintf("%s: %s lost %d clients, %s %d", s.Scenario, s.Contestant, s.Lost, s.Peer, s.PeerLost))
		}
	}
	return all
}
