package main

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/penstock/penstock/proxy/config"
)

// defaultConfigs are where a configuration is looked for if none is given.
var defaultConfigs = []string{"/etc/penstock/penstock.yaml", "penstock.yaml"}

// defaultConfig returns the first of them that is there, readable or not; "" if none is.
func defaultConfig(paths []string) string {
	for _, path := range paths {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return path
		}
	}
	return ""
}

// configFlag is how the commands that read one configuration are told which.
type configFlag struct {
	File   *string `arg:"" optional:"" placeholder:"FILE" help:"The configuration. (default: /etc/penstock/penstock.yaml, or else ./penstock.yaml)"`
	Config *string `placeholder:"FILE" help:"The same, as a flag."`

	path string // of it, once that was given
}

// given has path be the file that was given, or a default one.
func (c *configFlag) given(command string) (err error) {
	if c.Config != nil && c.File != nil {
		return usagef("%s: --config %s and %s: write one of them (see: penstock %[1]s --help)", command, *c.Config, *c.File)
	}
	c.path, err = configPath(command, cmp.Or(c.Config, c.File), "FILE")
	return err
}

// configPath returns the file that a flag or an argument names, or a default one for nil; what
// else may be written where there is none is instead.
func configPath(command string, file *string, instead string) (path string, err error) {
	switch {
	case file != nil && *file == "":
		return "", usagef("%s: the name of the configuration is empty: write penstock %[1]s %[2]s (see: penstock %[1]s --help)", command, instead)
	case file != nil:
		return *file, nil
	}
	if path = defaultConfig(defaultConfigs); path == "" {
		err = usagef("%s: there is no %s here: write penstock %[1]s %[3]s (see: penstock %[1]s --help)", command, strings.Join(defaultConfigs, ", and no "), instead)
	}
	return path, err
}

// load reads the configuration for a command. Its problems it has said when it fails.
func (c *configFlag) load(e *env, command string) (*config.Config, error) {
	if err := c.given(command); err != nil {
		return nil, err
	}
	cfg, problems := config.Load(c.path, e.environment())
	return cfg, e.sayProblems(problems)
}

// configFiles is how the commands that read any number of files are told which.
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

// each has f look at each of the files that were given, or at a default one, also after it
// has failed.
func (c *configFiles) each(e *env, command string, f func(file string) error) error {
	files, err := c.given(command)
	switch {
	case err != nil:
		return err
	case len(files) == 1:
		return f(files[0])
	}
	for _, file := range files {
		failed := f(file)
		if code := exitCode(0); failed != nil && !errors.As(failed, &code) {
			e.complain(failed)
		}
		if failed != nil {
			err = exitCode(exitError)
		}
	}
	return err
}
