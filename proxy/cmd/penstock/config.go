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
	s := &fileSource{given: path, path: path, env: env}
	if abs, err := filepath.Abs(path); err == nil {
		s.path = abs
	}
	return s
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
