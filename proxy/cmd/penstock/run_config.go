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

// badConfig makes an [*admin.ConfigError] of the problems of a configuration; nil if there are
// none.
func badConfig(path string, problems []config.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	bad := &admin.ConfigError{Path: path}
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
func logProblems(log *slog.Logger, bad *admin.ConfigError) {
	for _, line := range bad.Problems[:min(len(bad.Problems), maxLogged)] {
		log.Error(line)
	}
	if more := len(bad.Problems) - maxLogged; more > 0 {
		log.Error("there are more problems, see penstock check", "more", more)
	}
}

// logWarnings logs a line for each warning of a configuration.
func logWarnings(log *slog.Logger, warnings []config.Problem) {
	for _, w := range warnings[:min(len(warnings), maxLogged)] {
		log.Warn(w.Error())
	}
	if more := len(warnings) - maxLogged; more > 0 {
		log.Warn("there are more warnings, see penstock check", "more", more)
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
