package main

import (
	"errors"
	"fmt"

	"github.com/penstock/penstock/proxy/config"
)

type checkCmd struct {
	configFlag
}

// Run says every problem of a configuration, or how much there is in it and what of that is
// hardly meant.
func (c *checkCmd) Run(e *env) error {
	cfg, err := c.load(e, "check")
	if err == nil {
		err = e.say(cfg.Warnings)
	}
	if err != nil {
		return err
	}
	endpoints := 0
	for _, u := range cfg.Upstreams {
		endpoints += len(u.Endpoints)
	}
	fmt.Fprintf(e.stdout, "%s is good: %s, %s, %s\n", c.Config,
		count(len(cfg.Listeners), "listener"), count(len(cfg.Upstreams), "upstream"), count(endpoints, "endpoint"))
	return nil
}

// count is a number of things: 1 listener, 2 listeners.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// configFlag is the flag of the commands that read a configuration.
type configFlag struct {
	Config string `placeholder:"FILE" help:"The configuration."`
}

// given holds the flag to be there.
func (c *configFlag) given(command string) error {
	if c.Config == "" {
		return usagef("%s: --config is missing: write penstock %[1]s --config penstock.yaml (see: penstock %[1]s --help)", command)
	}
	return nil
}

// load reads the configuration for a command. Its problems it has said when it fails.
func (c *configFlag) load(e *env, command string) (*config.Config, error) {
	if err := c.given(command); err != nil {
		return nil, err
	}
	cfg, problems := config.Load(c.Config, e.environment())
	return cfg, e.sayProblems(problems)
}

// sayProblems writes problems down; the error says that there were any.
func (e *env) sayProblems(problems []config.Problem) error {
	if err := e.say(problems); err != nil {
		return err
	}
	if len(problems) > 0 {
		return exitCode(exitError)
	}
	return nil
}

func (e *env) say(problems []config.Problem) error {
	for _, p := range problems {
		if _, err := fmt.Fprintln(e.stderr, p.String()); err != nil {
			return errors.Join(exitCode(exitError), err)
		}
	}
	return nil
}
