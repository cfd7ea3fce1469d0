package main

import (
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

// noConfig is the error of a command that was given no configuration where there is none of
// the default ones; instead is what may be written in place of it.
func noConfig(command, instead string) error {
	return usagef("%s: there is no %s here: write penstock %[1]s %[3]s (see: penstock %[1]s --help)",
		command, strings.Join(defaultConfigs, ", and no "), instead)
}

// configFlag is how the commands that read one configuration are told which.
type configFlag struct {
	File   string `arg:"" optional:"" placeholder:"FILE" help:"The configuration. (default: /etc/penstock/penstock.yaml, or else ./penstock.yaml)"`
	Config string `placeholder:"FILE" help:"The same, as a flag."`
}

// given has Config be the file that was given, or a default one.
func (c *configFlag) given(command string) error {
	if c.Config != "" && c.File != "" {
		return usagef("%s: --config %s and %s: write one of them (see: penstock %[1]s --help)", command, c.Config, c.File)
	}
	if c.File != "" {
		c.Config = c.File
	}
	if c.Config == "" {
		c.Config = defaultConfig(defaultConfigs)
	}
	if c.Config == "" {
		return noConfig(command, "FILE")
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

// configFiles is how the commands that read any number of files are told which.
type configFiles struct {
	Files  []string `arg:"" optional:"" placeholder:"FILE" help:"The files. (default: /etc/penstock/penstock.yaml, or else ./penstock.yaml)"`
	Config []string `sep:"none" placeholder:"FILE" help:"The same, as a flag. May be repeated."`
}

// given returns the files that were given, or a default one.
func (c *configFiles) given(command string) ([]string, error) {
	files := append(c.Config, c.Files...)
	if len(files) == 0 {
		path := defaultConfig(defaultConfigs)
		if path == "" {
			return nil, noConfig(command, "FILE")
		}
		files = append(files, path)
	}
	return files, nil
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
