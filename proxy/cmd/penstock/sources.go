package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
)

type sourcesCmd struct {
	processFlags
	By      string `placeholder:"ORDER" enum:"connections,rate,refusals,bytes" default:"connections" help:"What there is most of: connections, rate, refusals or bytes. (default: ${default})"`
	Top     int    `placeholder:"N" default:"20" help:"How many. (default: ${default})"`
	Prefix  int    `placeholder:"BITS" default:"32" help:"How many bits of an IPv4 address make one source. (default: ${default})"`
	Prefix6 int    `name:"prefix6" placeholder:"BITS" default:"64" help:"The same, of IPv6. (default: ${default})"`
	JSON    bool   `name:"json" help:"In JSON."`
}

// Run lists sources of clients of a running process.
func (c *sourcesCmd) Run(e *cli.Env) error {
	switch {
	case c.Top < 1 || c.Top > admin.MaxTop:
		return cli.Usagef("sources: --top %d: write 1 to %d", c.Top, admin.MaxTop)
	case c.Prefix < 1 || c.Prefix > 32 || c.Prefix6 < 1 || c.Prefix6 > 128:
		return cli.Usagef("sources: write 1 to 32 for --prefix, and 1 to 128 for --prefix6")
	}
	return c.ask(e, "sources", func(ctx context.Context, client *admin.Client) error {
		s, err := client.Sources(ctx, admin.SourceQuery{By: c.By, Top: c.Top, Prefix4: c.Prefix, Prefix6: c.Prefix6})
		switch {
		case err != nil:
			return err
		case c.JSON:
			return writeJSON(e.Stdout, s)
		}
		return writeSources(e.Stdout, &s)
	})
}

// writeSources writes a table with a row for each source.
func writeSources(w io.Writer, s *admin.Sources) error {
	form := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(form, "source\tconnections\tnew/s\trefused\tbytes")
	for i := range s.Sources {
		one := &s.Sources[i]
		fmt.Fprintf(form, "%s\t%d\t%.1f\t%d\t%s\n", display.Text(one.Source), one.Connections, one.PerSecond, one.Refused, display.Bytes(one.Bytes))
	}
	if more := s.Known - len(s.Sources); more > 0 {
		fmt.Fprintf(form, "... and %d more\n", more)
	}
	return form.Flush()
}

// A source is the origin of a daemon's configuration.
type source interface {
	// load reads the configuration. The error may be an [*admin.ConfigError]. It is safe for
	// concurrent use.
	load() (*config.Config, error)
	// name is the absolute path of the file, or a name that is no path.
	name() string
}

// A fileSource is a configuration file.
type fileSource struct {
	given  string // the path as it was given
	path   string // absolute
	env    config.Env
	loaded atomic.Bool // load has been called
}

func newFileSource(path string, env config.Env) *fileSource {
	s := &fileSource{given: path, path: path, env: env}
	if abs, err := filepath.Abs(path); err == nil {
		s.path = abs
	}
	return s
}

func (s *fileSource) name() string { return s.path }

// load reads the file. Problems of the first time have the path as it was given.
func (s *fileSource) load() (*config.Config, error) {
	path := s.path
	if !s.loaded.Swap(true) {
		path = s.given
	}
	return loadConfig(path, s.env)
}

// errNoFile is the error of a reload or a plan of penstock proxy.
var errNoFile = errors.New("penstock proxy has no configuration file: write penstock proxy --print-config >penstock.yaml, and penstock run penstock.yaml")

// A flagSource is the configuration that the flags of penstock proxy have written. It is loaded
// once.
type flagSource struct {
	cfg    *config.Config
	loaded atomic.Bool // load has been called
}

func (*flagSource) name() string { return "the command line" }

func (s *flagSource) load() (*config.Config, error) {
	if s.loaded.Swap(true) {
		return nil, errNoFile
	}
	return s.cfg, nil
}

type denyCmd struct {
	List   denyListCmd   `cmd:"" default:"withargs" help:"List the denied sources (the default)."`
	Add    denyAddCmd    `cmd:"" help:"Deny a source for a time, beside the rules of the configuration. It survives reloads."`
	Remove denyRemoveCmd `cmd:"" help:"Take a denial back."`
}

type denyAddCmd struct {
	adminFlags
	Source   string   `arg:"" help:"An address, a prefix, unix, unix:uid=1000, unix:gid=1000 or all."`
	For      cli.Span `required:"" placeholder:"TIME" help:"For how long, such as 1h or 7d."`
	Listener string   `placeholder:"NAME" help:"At that listener alone."`
	End      bool     `help:"End the source's sessions, too, at once."`
	JSON     bool     `name:"json" help:"In JSON."`
}

// Run denies a source.
func (c *denyAddCmd) Run(e *cli.Env) error {
	return c.ask(e, "deny add", func(ctx context.Context, client *admin.Client) error {
		d, err := client.Deny(ctx, c.Source, c.Listener, c.For.Duration(), c.End)
		switch {
		case err != nil:
			return err
		case c.JSON:
			return writeJSON(e.Stdout, d)
		}
		if err := writeDenial(e.Stdout, &d); err != nil || d.Ended != nil {
			return err
		}
		q := admin.SessionQuery{Source: d.Source, Listener: d.Listener}
		left, err := client.EndSessions(ctx, admin.EndQuery{SessionQuery: q, DryRun: true})
		if err != nil {
			return fmt.Errorf("it is denied; its sessions go on, and could not be counted: %w", err)
		}
		return writeGoingOn(e.Stdout, left.Touched, &q)
	})
}

// writeDenial writes what a denial has done.
func writeDenial(w io.Writer, d *admin.NewDenial) error {
	at := ""
	if d.Listener != "" {
		at = " at listener " + d.Listener
	}
	_, err := fmt.Fprintf(w, "%s is denied%s until %s\n", display.Text(d.Source), display.Text(at), d.Until.Local().Format(time.DateTime))
	if d.Ended != nil {
		err = writeEnded(w, d.Ended)
	}
	if d.Unkept != "" {
		_, err = fmt.Fprintf(w, "This change is lost at a restart: %s\n", display.Text(d.Unkept))
	}
	return err
}

// writeGoingOn writes how many sessions of a denied source there still are.
func writeGoingOn(w io.Writer, n int64, q *admin.SessionQuery) error {
	if n == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "%s on: penstock sessions end %s --now ends them, as --end does\n", plural(n, "session of it goes", "sessions of it go"), display.Text(q.String()))
	return err
}

type denyRemoveCmd struct {
	adminFlags
	Source   string `arg:"" names:"denial" help:"As penstock deny list has it."`
	Listener string `placeholder:"NAME" help:"The listener of the denial, if it is of one."`
}

// Run takes a denial back.
func (c *denyRemoveCmd) Run(e *cli.Env) error {
	return c.ask(e, "deny remove", func(ctx context.Context, client *admin.Client) error {
		err := client.Undeny(ctx, c.Source, c.Listener)
		if err == nil {
			at := ""
			if c.Listener != "" {
				at = " at listener " + c.Listener
			}
			_, err = fmt.Fprintf(e.Stdout, "%s is not denied any more%s\n", display.Text(c.Source), display.Text(at))
		}
		return err
	})
}

type denyListCmd struct {
	adminFlags
	JSON bool `name:"json" help:"In JSON."`

	// Those of deny add, for a hint.
	Source   []string `arg:"" optional:"" hidden:""`
	For      string   `hidden:""`
	Listener string   `hidden:""`
	End      bool     `hidden:""`
}

// Run lists the denials.
func (c *denyListCmd) Run(e *cli.Env) error {
	if c.Source != nil || c.For != "" || c.Listener != "" || c.End {
		return cli.Usagef("deny: nothing was denied: write %s", c.asAdd())
	}
	return c.ask(e, "deny list", func(ctx context.Context, client *admin.Client) error {
		d, err := client.Denied(ctx)
		switch {
		case err != nil:
			return err
		case c.JSON:
			return writeJSON(e.Stdout, d)
		}
		return writeDenied(e.Stdout, &d, time.Now())
	})
}

// asAdd returns the command that denies.
func (c *denyListCmd) asAdd() string {
	words := []string{"penstock deny add", cmp.Or(strings.Join(c.Source, " "), "SOURCE"), "--for", cmp.Or(c.For, "1h")}
	if c.Listener != "" {
		words = append(words, "--listener", c.Listener)
	}
	if c.End {
		words = append(words, "--end")
	}
	return strings.Join(words, " ")
}

// writeDenied writes a table with a row for each denial.
func writeDenied(w io.Writer, d *admin.Denied, now time.Time) error {
	if len(d.Denied) == 0 {
		_, err := fmt.Fprintln(w, "no source is denied by hand")
		return err
	}
	form := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(form, "source\tlistener\tuntil\tleft\tby")
	for _, one := range d.Denied {
		fmt.Fprintf(form, "%s\t%s\t%s\t%v\t%s\n", display.Text(one.Source), display.Text(cmp.Or(one.Listener, "all")),
			one.Until.Local().Format(time.DateTime), one.Until.Sub(now).Round(time.Second), display.Text(cmp.Or(one.By, "-")))
	}
	return form.Flush()
}
