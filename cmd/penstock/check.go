package main

import (
	"errors"
	"fmt"

	"github.com/penstock/penstock/proxy/config"
)

type checkCmd struct {
	configFiles
}

// Run says every problem of each configuration, or how much there is in it and what of that
// is hardly meant.
func (c *checkCmd) Run(e *env) error {
	return c.each(e, "check", func(file string) error { return check(e, file) })
}

// check is Run of one file.
func check(e *env, file string) error {
	cfg, problems := config.Load(file, e.environment())
	err := e.sayProblems(problems)
	if err == nil {
		err = e.say(cfg.Warnings)
	}
	if err != nil {
		return err
	}
	if most := int64(affordableByDefault(descriptors())); cfg.Limits.Connections > most {
		fmt.Fprintf(e.stderr, "%s: warning: limits.connections is %d, and RLIMIT_NOFILE allows %d here: raise it where penstock runs (LimitNOFILE= of systemd), or write %d or less\n",
			file, cfg.Limits.Connections, most, most)
	}
	endpoints := 0
	for _, u := range cfg.Upstreams {
		endpoints += len(u.Endpoints)
	}
	fmt.Fprintf(e.stdout, "%s is good: %s, %s, %s\n", file,
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
