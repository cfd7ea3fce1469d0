package shadow

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
)

// Setup is the setup of a comparison.
type Setup struct {
	rounds.Setup
	Program contestant.Program
	Dir     string        // for configurations, which the caller removes
	Trial   time.Duration // of each of the two trials of a contestant in a round
}

// comparison is one under way.
type comparison struct {
	Setup
	contestants []*contestant.Contestant
}

// A subject is a contestant that has not been started.
type subject struct {
	kind        *contestant.Kind
	name, about string
}

// Measure compares mirrors; the row without a mirror is the first. If it fails, or ctx ends, it returns the results until then
// with the error. Everything that it has started ends with the group.
func Measure(ctx context.Context, s Setup) (*Report, error) {
	return measure(ctx, s, (*comparison).mirrors)
}

// MeasureRewrites compares sessions that are rewritten by masks and by a module; the row of those that are spliced is the first. Otherwise it is as Measure.
func MeasureRewrites(ctx context.Context, s Setup) (*Report, error) {
	return measure(ctx, s, (*comparison).rewritten)
}

func measure(ctx context.Context, s Setup, subjects func(*comparison, context.Context) ([]subject, error)) (*Report, error) {
	r := &Report{Rounds: s.Rounds, Trial: report.Number(s.Trial.Seconds())}
	c := &comparison{Setup: s}
	err := c.begin(ctx, r, subjects)
	if err == nil {
		for round, i := range c.Turns(len(c.contestants)) {
			if err = c.round(ctx, c.contestants[i], &r.Rows[i], round); err != nil {
				break
			}
		}
	}
	for i := range r.Rows {
		r.Rows[i].sum(&r.Rows[0])
	}
	return r, err
}

// begin starts all processes.
func (c *comparison) begin(ctx context.Context, r *Report, subjects func(*comparison, context.Context) ([]subject, error)) error {
	upstream, err := c.server(ctx, healthy)
	if err != nil {
		return err
	}
	all, err := subjects(c, ctx)
	if err != nil {
		return err
	}
	for _, of := range all {
		started, err := of.kind.Start(ctx, &contestant.Setting{Group: c.Group, Program: c.Program, Dir: c.Dir, Upstream: upstream})
		if err != nil {
			return err
		}
		c.contestants = append(c.contestants, started)
		r.Rows = append(r.Rows, Row{Shadow: of.name, About: of.about})
	}
	return context.Cause(ctx)
}

// rewritten returns the contestants of MeasureRewrites.
func (c *comparison) rewritten(context.Context) (all []subject, err error) {
	module, err := writeModule(c.Dir)
	if err != nil {
		return nil, err
	}
	for _, s := range []struct {
		name, about, keys string
		options           []string
	}{
		{"spliced", "nothing is rewritten", "", nil},
		{"copied", "nothing is rewritten, and everything is copied", "", []string{"--engine", "copy"}},
		{"email", "addresses of e-mail are masked", "mask: [email]", nil},
		{"card", "card numbers are masked", "mask: [card]", nil},
		{"token", "tokens are masked", "mask: [token]", nil},
		{"all", "all three are masked", "mask: [card, token, email]", nil},
		{"pattern", "a pattern with a literal beginning is masked", `patterns: ["ID-[0-9]{6}"]`, nil},
		{"wasm", "a module of WebAssembly masks digits, a byte at a time", module, nil},
	} {
		all = append(all, subject{contestant.Rewriting(s.name, s.about, s.keys, s.options...), s.name, s.about})
	}
	return all, nil
}

// mirrors starts the shadows, and returns the contestants of Measure.
func (c *comparison) mirrors(ctx context.Context) (all []subject, err error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	dead := free.Addr().String()
	_ = free.Close() // from now on connections are refused
	shadows := []struct{ name, about, at string }{
		{"none", "no mirror", ""},
		{"healthy", "a shadow like the endpoint", ""},
		{"dead", "a shadow that refuses", dead},
		{"frozen", "a shadow that accepts and never reads", ""},
		{"slow", fmt.Sprintf("a shadow that reads %d KiB of a connection every %v", slowBytes>>10, slowPause), ""},
		{"none again", "no mirror, once more: its ratios are those of noise", ""},
	}
	for i := range shadows {
		s := &shadows[i]
		if b := behavior(s.name); b == healthy || b == frozen || b == slow {
			if s.at, err = c.server(ctx, b); err != nil {
				return nil, err
			}
		}
		all = append(all, subject{contestant.Mirroring(s.name, s.about, s.at), s.name, s.about})
	}
	return all, nil
}

// server starts a server, and returns its address.
func (c *comparison) server(ctx context.Context, b behavior) (address string, err error) {
	child, err := c.Group.Start(c.Program.Spec("a server", c.Program.Part, PartServer, string(b)))
	if err != nil {
		return "", err
	}
	var at struct{ Address string }
	if err := child.Receive(ctx, &at); err != nil {
		return "", contestant.Describe(err)
	}
	return at.Address, nil
}

// round is a contestant's.
func (c *comparison) round(ctx context.Context, of *contestant.Contestant, row *Row, number int) error {
	var r Round
	before, err := of.Usage()
	if err != nil {
		return err
	}
	rate, err := upload(ctx, of.Address, c.Trial)
	if err != nil {
		return fmt.Errorf("%s: %w", row.Shadow, err)
	}
	after, err := of.Usage()
	if err != nil {
		return err
	}
	r.Bulk, r.BulkCPU = report.Number(rate), report.Number(after.Sub(before).CPU.Seconds()/(rate*c.Trial.Seconds()/1e9))
	echoed, p99, err := converse(ctx, of.Address, c.Trial)
	if err != nil {
		return fmt.Errorf("%s: %w", row.Shadow, err)
	}
	r.Messages, r.P99 = report.Number(echoed), report.Number(p99.Seconds())
	account, err := of.Account(ctx)
	if err != nil {
		return err
	}
	row.Mirrors = account.Mirrors
	row.Rounds = append(row.Rounds, r)
	c.Notify(rounds.Progress{Round: number, Contestant: row.Shadow, Result: report.Bytes(rate) + "/s"})
	return nil
}
