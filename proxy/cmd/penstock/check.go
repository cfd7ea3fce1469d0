package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/lanes"
	"github.com/penstock/penstock/proxy/server"
)

type checkCmd struct {
	configFiles
}

// Run prints every problem of each configuration, or the size of a valid one and its warnings.
func (c *checkCmd) Run(e *cli.Env) error {
	return c.each(e, "check", func(file string) error { return check(e, file) })
}

func check(e *cli.Env, file string) error {
	cfg, problems := config.Load(file, e.Environment())
	err := reportProblems(e, problems)
	if err == nil {
		err = printProblems(e, cfg.Warnings)
	}
	if err != nil {
		return err
	}
	if most := int64(cli.Affordable(cli.Descriptors(), cfg.Limits.Loops.Number(cli.DefaultLoops()))); cfg.Limits.Connections > most {
		fmt.Fprintf(e.Stderr, "%s: warning: limits.connections is %d, but RLIMIT_NOFILE allows %d here: raise RLIMIT_NOFILE where penstock runs (LimitNOFILE= of systemd), or write %d or less\n",
			file, cfg.Limits.Connections, most, most)
	}
	if cfg.RequiresLane() {
		if err := lane.Probe(); err != nil {
			fmt.Fprintf(e.Stderr, "%s: warning: lane: require: %v: penstock run would not start with these privileges here\n", file, err)
		}
	}
	if err := lanes.CheckDevices(cfg.Lane.Devices); err != nil && cfg.WantsLane() {
		result := "sessions would stay in user space here"
		if cfg.RequiresLane() {
			result = "penstock run would not start here"
		}
		fmt.Fprintf(e.Stderr, "%s: warning: %v: %s\n", file, err, result)
	}
	if err := lanes.CheckPins(string(cfg.Lane.Pins)); err != nil && cfg.WantsLane() {
		fmt.Fprintf(e.Stderr, "%s: warning: %v: sessions would stay in user space here\n", file, err)
	}
	warnNames(e, file, cfg)
	endpoints := 0
	for _, u := range cfg.Upstreams {
		endpoints += len(u.Endpoints)
	}
	fmt.Fprintf(e.Stdout, "%s is good: %s, %s, %s\n", file,
		count(len(cfg.Listeners), "listener"), count(len(cfg.Upstreams), "upstream"), count(endpoints, "endpoint"))
	for _, line := range config.Copied(cfg) {
		fmt.Fprintf(e.Stdout, "  %s\n", display.Text(line))
	}
	return nil
}

// namePatience is how long check waits for the names of endpoints.
const namePatience = 3 * time.Second

// warnNames warns of endpoints with names that do not resolve, or could not be looked up.
func warnNames(e *cli.Env, file string, cfg *config.Config) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), namePatience, fmt.Errorf("there was no answer within %v", namePatience))
	defer cancel()
	missing, unknown := server.UnresolvedNames(ctx, cfg)
	if n := len(missing); n > 0 {
		fmt.Fprintf(e.Stderr, "%s: warning: names of endpoints do not resolve here (%d): %s\n", file, n, someOf(missing))
	}
	if n := len(unknown); n > 0 {
		fmt.Fprintf(e.Stderr, "%s: warning: names of endpoints could not be looked up here, and may not resolve (%d): %s\n", file, n, someOf(unknown))
	}
}

// mostNames is how many names a warning lists.
const mostNames = 5

// someOf lists the first of several texts, and how many more there are.
func someOf(list []string) string {
	text := strings.Join(list[:min(len(list), mostNames)], ", ")
	if more := len(list) - mostNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return display.Text(text)
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func reportProblems(e *cli.Env, problems []config.Problem) error {
	if err := printProblems(e, problems); err != nil {
		return err
	}
	if len(problems) > 0 {
		return cli.ExitCode(cli.ExitError)
	}
	return nil
}

func printProblems(e *cli.Env, problems []config.Problem) error {
	for _, p := range problems {
		if _, err := fmt.Fprintln(e.Stderr, p.String()); err != nil {
			return errors.Join(cli.ExitCode(cli.ExitError), err)
		}
	}
	return nil
}
