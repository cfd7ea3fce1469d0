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

// badConfig makes an [*admin.ConfigError] of the problems of a configuration; nil of none.
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

// maxLogged is how many problems of a configuration are logged.
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

// logWarnings logs a line for each thing of a configuration that is hardly meant.
func logWarnings(log *slog.Logger, warnings []config.Problem) {
	for _, w := range warnings[:min(len(warnings), maxLogged)] {
		log.Warn(w.Error())
	}
	if more := len(warnings) - maxLogged; more > 0 {
		log.Warn("there are more warnings, see penstock check", "more", more)
	}
}

// environment returns what looks variables of the environment up.
func (e *env) environment() config.Env {
	if e.lookup != nil {
		return e.lookup
	}
	return func(name string) (string, bool) {
		value := e.getenv(name)
		return value, value != ""
	}
}

// adminBind returns where the process of a configuration is asked and told; "" for
// nowhere.
func adminBind(cfg *config.Config) string {
	if cfg.Admin == nil {
		return ""
	}
	return cfg.Admin.Bind.String()
}
