package main

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
)

// loadConfig reads a configuration. The error is an [*admin.ConfigError].
func loadConfig(path string, env config.Env) (*config.Config, error) {
	cfg, problems := config.Load(path, env)
	if err := badConfig(path, problems); err != nil {
		return nil, err
	}
	return cfg, nil
}

// A badFile is an [*admin.ConfigError] with the problems that it is about.
type badFile struct {
	*admin.ConfigError
	found []config.Problem
}

// Unwrap returns the error that callers of the admin API get.
func (b *badFile) Unwrap() error { return b.ConfigError }

// badConfig makes a [*badFile] of the problems of a configuration; nil if there are
// none.
func badConfig(path string, problems []config.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	bad := &badFile{&admin.ConfigError{Path: path}, problems}
	var text strings.Builder
	for _, p := range problems {
		bad.Problems = append(bad.Problems, p.Error())
		fmt.Fprintln(&text, p.String())
	}
	bad.Text = text.String()
	return bad
}

// maxLogged is the number of problems of a configuration that are logged.
const maxLogged = 20

// logProblems logs a line for each problem of a configuration.
func logProblems(log *slog.Logger, bad *badFile) {
	logEach(log.Error, bad.found, "a problem of the configuration", "there are more problems, see penstock check")
}

// logWarnings logs a line for each warning of a configuration.
func logWarnings(log *slog.Logger, warnings []config.Problem) {
	logEach(log.Warn, warnings, "a warning of the configuration", "there are more warnings, see penstock check")
}

// logEach logs a line for each of the first problems, and one for the number of the others.
func logEach(log func(msg string, args ...any), list []config.Problem, msg, others string) {
	for _, p := range list[:min(len(list), maxLogged)] {
		cause := p.Message
		if p.Fix != "" {
			cause += ": " + p.Fix
		}
		log(msg, "file", p.Pos.File, "line", p.Pos.Line, "cause", cause)
	}
	if more := len(list) - maxLogged; more > 0 {
		log(others, "more", more)
	}
}

// adminAccess returns the admin address of a configuration, and the conditions of its clients. The address is
// "" if there is none, or it is a private one.
func adminAccess(cfg *config.Config) (a admin.Access) {
	c := cfg.Admin
	if c == nil {
		return a
	}
	a = admin.Access{Group: c.Group, ReadToken: c.ReadToken.Value, ChangeToken: c.ChangeToken.Value}
	if !c.Bind.Auto() {
		a.Bind = c.Bind.String()
	}
	if c.TLS != nil {
		a.Cert, a.Key, a.ClientCA = string(c.TLS.Cert), string(c.TLS.Key), string(c.TLS.ClientCA)
	}
	return a
}
