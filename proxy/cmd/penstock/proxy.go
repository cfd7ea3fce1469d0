package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf8"

	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/sockopt"
	"go.yaml.in/yaml/v4"
)

type proxyCmd struct {
	Listen []string `sep:"none" placeholder:"ADDR" help:"Listen at this address: host:port, :port, [ipv6]:port, unix:/path or unix:/path?mode=0660. With port 0 the kernel chooses a port. May be repeated."`
	To     []string `sep:"none" placeholder:"ADDR" help:"Forward to this endpoint: host:port or unix:/path. May be repeated: the endpoints take turns, and if an endpoint refuses, the next one is tried."`

	SourceAddress string `placeholder:"IP" help:"Connect to endpoints from this local address. (default: the kernel chooses)"`

	ConnectTimeout   cli.Timeout `default:"5s" placeholder:"TIME" help:"Allow this time for connecting to an endpoint, all its addresses included. For every timeout 0 means no limit. (default: ${default})"`
	IdleTimeout      cli.Timeout `default:"1h" placeholder:"TIME" help:"End a session if for this long no byte moved and none was acknowledged. (default: ${default})"`
	HalfCloseTimeout cli.Timeout `default:"1m" placeholder:"TIME" help:"End a session in which no byte moved for this long after one side has sent its end of file. (default: ${default})"`
	UserTimeout      cli.Timeout `default:"30s" placeholder:"TIME" help:"End the connection if the peer leaves data, a window probe or a keepalive unacknowledged for this long. (default: ${default})"`

	MaxConnections *int64 `placeholder:"N" help:"Serve at most this many connections at once. At the limit, accepting pauses. (default and maximum: what RLIMIT_NOFILE allows)"`

	Admin       string `placeholder:"ADDR" help:"Serve the admin API, for commands such as penstock status, at this address: unix:/path, or 127.0.0.1:PORT. (default: none)"`
	AdminToken  string `placeholder:"FILE" help:"Read the token of the admin API from this file. A TCP address needs a token (penstock status --token-file FILE)."`
	PrintConfig bool   `help:"Print these flags as a configuration for penstock run, and exit."`

	serverFlags
	logFlags

	open opener `kong:"-"` // nil: openBalancer
}

// Run serves until a signal stops it.
func (c *proxyCmd) Run(e *cli.Env) error {
	return c.logged(e, func(log *slog.Logger) error {
		text, err := c.write()
		if err != nil {
			return cli.Usagef("proxy: %w (see: penstock proxy --help)", err)
		}
		cfg, problems := config.Parse(text.name, text.bytes(), noVariables)
		if err := text.explain(problems); err != nil {
			return cli.Usagef("proxy: %w (see: penstock proxy --help)", err)
		}
		if c.PrintConfig {
			_, err := e.Stdout.Write(text.bytes())
			return err
		}
		text.rename(cfg.Warnings)
		return c.logFlags.serve(e, "proxy", log, &c.serverFlags, &daemonConfig{source: &flagSource{cfg: cfg}, open: c.open})
	})
}

// noVariables is the environment for flags, in which the shell has expanded variables already.
func noVariables(string) (string, bool) { return "", false }

// proxyName is the name of penstock proxy's listener, and of its upstream.
const proxyName = "proxy"

// A flagText is a configuration made from flags: one value per line.
type flagText struct {
	name  string // instead of a file's name
	lines []string
	flags []string // by line: the flag and its value
}

// add adds the line for a flag; flag is "" for a line that no flag has caused.
func (t *flagText) add(flag, format string, args ...any) {
	t.lines, t.flags = append(t.lines, fmt.Sprintf(format, args...)), append(t.flags, flag)
}

func (t *flagText) bytes() []byte { return []byte(strings.Join(t.lines, "\n") + "\n") }

// flagAt returns the flag that caused the line of a problem.
func (t *flagText) flagAt(p config.Problem) string {
	if i := p.Pos.Line - 1; i >= 0 && i < len(t.flags) {
		return t.flags[i]
	}
	return ""
}

func (t *flagText) rename(problems []config.Problem) {
	for i := range problems {
		if flag := t.flagAt(problems[i]); flag != "" {
			problems[i].Pos = config.Pos{File: flag}
		}
	}
}

// explain returns the problems as a one-line error, or nil.
func (t *flagText) explain(problems []config.Problem) error {
	t.rename(problems)
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.Error())
	}
	if lines == nil {
		return nil
	}
	return errors.New(strings.Join(lines, "; "))
}

// quoted returns a value as one-line YAML, for a block mapping or sequence. A $ in it is not a variable.
func quoted(value string) string {
	value = strings.ReplaceAll(value, "$", "$$")
	text, err := yaml.Dump(value)
	if err != nil || bytes.Count(text, []byte("\n")) != 1 {
		return fmt.Sprintf("%q", value)
	}
	return string(bytes.TrimSpace(text))
}

func (c *proxyCmd) write() (*flagText, error) {
	t := &flagText{name: "the command line"}
	if err := cmp.Or(c.checkAddresses(), c.checkLoops()); err != nil {
		return nil, err
	}
	if n := c.MaxConnections; n != nil {
		if *n < 1 {
			return nil, errors.New("--max-connections: write 1 or more, or leave the flag out: then RLIMIT_NOFILE is the limit")
		}
	}
	c.writeLimits(t)
	if c.Admin != "" {
		t.add("--admin", "admin:")
		t.add("--admin", "  bind: %s", quoted(c.Admin))
		if c.AdminToken != "" {
			t.add("--admin-token", "  change_token: %s", quoted("file:"+c.AdminToken))
		}
	}
	t.add("", "listeners:")
	t.add("--listen", "  - name: %s", proxyName)
	t.add("--listen", "    upstream: %s", proxyName)
	t.add("--listen", "    bind:")
	for _, at := range c.Listen {
		t.add("--listen", "      - %s", quoted(at))
	}
	t.add("", "    timeouts:")
	t.add("--connect-timeout", "      connect: %s", timeText(c.ConnectTimeout))
	t.add("--idle-timeout", "      idle: %s", timeText(c.IdleTimeout))
	t.add("--half-close-timeout", "      half_close: %s", timeText(c.HalfCloseTimeout))
	t.add("", "    socket:")
	t.add("--user-timeout", "      user_timeout: %s", timeText(c.UserTimeout))
	t.add("", "upstreams:")
	t.add("--to", "  - name: %s", proxyName)
	for _, part := range []string{"health_check", "outlier_detection", "circuit_breaker"} {
		t.add("", "    %s: off", part)
	}
	if c.SourceAddress != "" {
		t.add("--source-address", "    source_address: %s", quoted(c.SourceAddress))
	}
	t.add("", "    endpoints:")
	for _, to := range c.To {
		t.add("--to", "      - %s", quoted(to))
	}
	return t, nil
}

// writeLimits writes the limits of the process. Their values are checked before.
func (c *proxyCmd) writeLimits(t *flagText) {
	if c.MaxConnections == nil && c.Loops == nil {
		return
	}
	t.add("", "limits:")
	if c.MaxConnections != nil {
		t.add("--max-connections", "  connections: %d", *c.MaxConnections)
	}
	if c.Loops != nil {
		t.add("--loops", "  loops: {count: %d}", *c.Loops)
	}
}

// timeText returns a timeout as it is written in the configuration.
func timeText(t cli.Timeout) string {
	if t.Duration() <= 0 {
		return "0s"
	}
	return t.Duration().String()
}

func (c *proxyCmd) checkAddresses() error {
	for _, f := range []struct {
		flag  string
		specs []string
	}{{"--listen", c.Listen}, {"--to", c.To}} {
		if len(f.specs) == 0 {
			return fmt.Errorf("%s is missing: use penstock proxy --listen :8080 --to 10.0.0.5:80", f.flag)
		}
		for _, spec := range f.specs {
			if _, err := sockopt.Parse(spec); err != nil {
				return fmt.Errorf("%s: %w", f.flag, err)
			}
		}
	}
	if at, err := sockopt.Parse(c.Admin); err == nil && at.Network != "unix" && at.Private() == nil && c.AdminToken == "" {
		return fmt.Errorf("--admin: every user of this machine could change everything at %s: write --admin-token FILE too, or --admin unix:/path", at)
	}
	for flag, spec := range map[string]string{"--admin": c.Admin, "--source-address": c.SourceAddress} {
		if !utf8.ValidString(spec) { // YAML would change it
			return fmt.Errorf("%s: %q is not UTF-8: write printable characters", flag, spec)
		}
	}
	return nil
}
