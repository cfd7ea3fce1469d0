package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/lanes"
	"github.com/penstock/penstock/proxy/server"
)

// defaultConfigs are the paths of the configuration if none is given.
var defaultConfigs = []string{"/etc/penstock/penstock.yaml", "penstock.yaml"}

// defaultConfig returns the first of paths that exists, readable or not, or "" if none does.
func defaultConfig(paths []string) string {
	for _, path := range paths {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return path
		}
	}
	return ""
}

// configFlag selects the file for commands that read one configuration.
type configFlag struct {
	File   *string `arg:"" optional:"" placeholder:"FILE" help:"The configuration. (default: /etc/penstock/penstock.yaml, or else ./penstock.yaml)"`
	Config *string `placeholder:"FILE" help:"The same, as a flag."`

	path string // of the configuration; set by given
}

// given sets path to the given file, or to a default.
func (c *configFlag) given(command string) (err error) {
	if c.Config != nil && c.File != nil {
		return cli.Usagef("%s: --config %s and %s name two files: write only one of them (see: penstock %[1]s --help)", command, *c.Config, *c.File)
	}
	c.path, err = configPath(command, cmp.Or(c.Config, c.File), "FILE")
	return err
}

// configPath returns *file, the value of a flag or an argument, or a default path if file is nil. instead is what its
// errors suggest.
func configPath(command string, file *string, instead string) (path string, err error) {
	switch {
	case file != nil && *file == "":
		return "", cli.Usagef("%s: the name of the configuration is empty: use penstock %[1]s %[2]s (see: penstock %[1]s --help)", command, instead)
	case file != nil:
		return *file, nil
	}
	if path = defaultConfig(defaultConfigs); path == "" {
		err = cli.Usagef("%s: there is no %s here: use penstock %[1]s %[3]s (see: penstock %[1]s --help)", command, strings.Join(defaultConfigs, ", and no "), instead)
	}
	return path, err
}

// load reads the configuration for a command. If it fails, it has already printed the problems.
func (c *configFlag) load(e *cli.Env, command string) (*config.Config, error) {
	if err := c.given(command); err != nil {
		return nil, err
	}
	cfg, problems := config.Load(c.path, e.Environment())
	return cfg, reportProblems(e, problems)
}

// configFiles select the files for commands that read any number of them.
type configFiles struct {
	Files  []string `arg:"" optional:"" placeholder:"FILE" help:"The files. (default: /etc/penstock/penstock.yaml, or else ./penstock.yaml)"`
	Config []string `sep:"none" placeholder:"FILE" help:"The same, as a flag. May be repeated."`
}

// given returns the given files, or a default.
func (c *configFiles) given(command string) (files []string, err error) {
	for _, file := range append(c.Config, c.Files...) {
		if file, err = configPath(command, &file, "FILE"); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	if len(files) > 0 {
		return files, nil
	}
	path, err := configPath(command, nil, "FILE")
	return []string{path}, err
}

// each calls f for each given file, or for the default. It goes on after an error.
func (c *configFiles) each(e *cli.Env, command string, f func(file string) error) error {
	files, err := c.given(command)
	switch {
	case err != nil:
		return err
	case len(files) == 1:
		return f(files[0])
	}
	for _, file := range files {
		failed := f(file)
		if code := cli.ExitCode(0); failed != nil && !errors.As(failed, &code) {
			e.PrintError(failed)
		}
		if failed != nil {
			err = cli.ExitCode(cli.ExitError)
		}
	}
	return err
}

type configCmd struct {
	configFlag
	JSON bool `name:"json" help:"Print JSON."`
}

// Run prints a configuration with the files that it includes, and with all defaults.
func (c *configCmd) Run(e *cli.Env) error {
	cfg, err := c.load(e, "config")
	if err != nil {
		return err
	}
	text := cfg.YAML()
	if c.JSON {
		text = cfg.JSON()
	}
	_, err = e.Stdout.Write(text)
	return err
}

type schemaCmd struct {
	File   *string `arg:"" optional:"" placeholder:"FILE" help:"Validate this file against the schema first, and print its problems as check does."`
	Config *string `placeholder:"FILE" help:"The same, as a flag."`
}

// Run prints the schema. With a file, it first checks the file and validates it against the schema: the schema alone
// would find fewer problems, and has no line numbers.
func (c *schemaCmd) Run(e *cli.Env) error {
	if c.Config != nil || c.File != nil {
		f := &configFlag{Config: c.Config, File: c.File}
		if _, err := f.load(e, "schema"); err != nil {
			return err
		}
		if err := reportProblems(e, config.Validate(f.path)); err != nil {
			return err
		}
	}
	_, err := e.Stdout.Write(config.SchemaJSON())
	return err
}

// A source is where a daemon's configuration comes from.
type source interface {
	// load reads the configuration. The error may be an [*admin.ConfigError]. It is safe for concurrent use.
	load() (*config.Config, error)
	// known is load for callers who may only look. It loads no WebAssembly modules, and returns the modules that may
	// be unusable because this process has not loaded them yet.
	known() (*config.Config, []*config.Unknown, error)
	// name returns the absolute path of the file, or a name that is not a path.
	name() string
}

// A fileSource is a configuration file.
type fileSource struct {
	given  string // the path on the command line
	path   string // absolute
	env    config.Env
	loaded atomic.Bool // load has been called
}

func newFileSource(path string, env config.Env) *fileSource {
	return &fileSource{given: path, path: absolute(path), env: env}
}

func (s *fileSource) name() string { return s.path }

func (s *fileSource) load() (*config.Config, error) {
	path := s.path
	if !s.loaded.Swap(true) {
		path = s.given
	}
	return loadConfig(path, s.env)
}

// known reads the file without loading modules.
func (s *fileSource) known() (*config.Config, []*config.Unknown, error) {
	return knownConfig(s.path, s.env)
}

// errNoFile is the error for reload and plan of penstock proxy.
var errNoFile = errors.New("penstock proxy has no configuration file: use penstock proxy --print-config >penstock.yaml, and penstock run penstock.yaml")

// A flagSource is the configuration made from the flags of penstock proxy. It is loaded once.
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

func (*flagSource) known() (*config.Config, []*config.Unknown, error) { return nil, nil, errNoFile }

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
