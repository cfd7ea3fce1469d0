package main

import (
	"errors"
	"path/filepath"
	"sync/atomic"

	"github.com/penstock/penstock/proxy/config"
)

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
