package main

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
)

// defaultConfigs are the paths of the configuration if none is given.
var defaultConfigs = []string{"/etc/penstock/penstock.yaml", "penstock.yaml"}

// defaultConfig returns the first of paths that exists, readable or not; "" if none does.
func defaultConfig(paths []string) string {
	for _, path := range paths {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return path
		}
	}
	return ""
}

// configFlag selects the file of the commands that read one configuration.
type configFlag struct {
	File   *string `arg:"" optional:"" placeholder:"FILE" help:"The configuration. (default: /etc/penstock/penstock.yaml, or else ./penstock.yaml)"`
	Config *string `placeholder:"FILE" help:"The same, as a flag."`

	path string // of the configuration, set by given
}

// given sets path to the file that was given, or to a default one.
func (c *configFlag) given(command string) (err error) {
	if c.Config != nil && c.File != nil {
		return cli.Usagef("%s: --config %s and %s: write one of them (see: penstock %[1]s --help)", command, *c.Config, *c.File)
	}
	c.path, err = configPath(command, cmp.Or(c.Config, c.File), "FILE")
	return err
}

// configPath returns *file, the value of a flag or an argument, or a default one if file is
// nil. instead is the suggestion of its errors.
func configPath(command string, file *string, instead string) (path string, err error) {
	switch {
	case file != nil && *file == "":
		return "", cli.Usagef("%s: the name of the configuration is empty: write penstock %[1]s %[2]s (see: penstock %[1]s --help)", command, instead)
	case file != nil:
		return *file, nil
	}
	if path = defaultConfig(defaultConfigs); path == "" {
		err = cli.Usagef("%s: there is no %s here: write penstock %[1]s %[3]s (see: penstock %[1]s --help)", command, strings.Join(defaultConfigs, ", and no "), instead)
	}
	return path, err
}

// load reads the configuration for a command. If it fails, it has printed the problems.
func (c *configFlag) load(e *cli.Env, command string) (*config.Config, error) {
	if err := c.given(command); err != nil {
		return nil, err
	}
	cfg, problems := config.Load(c.path, e.Environment())
	return cfg, reportProblems(e, problems)
}

// configFiles select the files of the commands that read any number of them.
type configFiles struct {
	Files  []string `arg:"" optional:"" placeholder:"FILE" help:"The files. (default: /etc/penstock/penstock.yaml, or else ./penstock.yaml)"`
	Config []string `sep:"none" placeholder:"FILE" help:"The same, as a flag. May be repeated."`
}

// given returns the files that were given, or a default one.
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

// each calls f for each of the files that were given, or for a default one. It goes on after
// an error.
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

// Run prints a configuration, with the files it includes, and with all defaults.
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

// Run prints the schema. A file is checked and validated against it first: the schema alone
// would find less, and could not report the position.
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

// A source is the origin of a daemon's configuration.
type source interface {
	// load reads the configuration. The error may be an [*admin.ConfigError]. It is safe for
	// concurrent use.
	load() (*config.Config, error)
	// known is load for those who may only look: it loads no modules of WebAssembly, and returns those of which it is not known whether
	// they can be loaded.
	known() (*config.Config, []*config.Unknown, error)
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

// known reads the file.
func (s *fileSource) known() (*config.Config, []*config.Unknown, error) {
	return knownConfig(s.path, s.env)
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

func (*flagSource) known() (*config.Config, []*config.Unknown, error) { return nil, nil, errNoFile }
