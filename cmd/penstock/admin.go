package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
)

// adminFlags say whom a command asks.
type adminFlags struct {
	Config *string `placeholder:"FILE" help:"The configuration of the process to be asked: it says where. (default: /etc/penstock/penstock.yaml, or else ./penstock.yaml)"`
	Admin  *string `placeholder:"ADDR" help:"Where to ask instead: unix:/path, or host:port of this machine."`
}

// ask has f ask the running process.
func (f *adminFlags) ask(e *env, command string, ask func(ctx context.Context, c *admin.Client) error) error {
	bind, err := f.bind(e, command)
	if err != nil {
		return e.failed(err)
	}
	client, err := admin.NewClient(bind)
	if err != nil {
		return usagef("%s: --admin: %w", command, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- ask(ctx, client) }()
	select {
	case err = <-done:
	case <-e.stops:
		cancel()
		if err = <-done; errors.Is(err, context.Canceled) {
			err = errors.New("interrupted before there was an answer")
		}
	}
	return e.failed(err)
}

// bind returns where to ask.
func (f *adminFlags) bind(e *env, command string) (string, error) {
	if f.Admin != nil {
		return *f.Admin, nil
	}
	path, err := configPath(command, f.Config, "--config FILE, or --admin unix:/run/penstock/admin.sock")
	if err != nil {
		return "", err
	}
	bind, problems := config.AdminBind(path, e.environment())
	if bind != "" {
		return bind, nil
	}
	if bad, ok := errors.AsType[*admin.ConfigError](badConfig(path, problems)); ok {
		bad.Text += fmt.Sprintf("where to ask is not known because of that: write --admin ADDRESS, for example --admin unix:/run/penstock/admin.sock, or correct %s\n", path)
		return "", bad
	}
	return "", fmt.Errorf(`%s: no place to ask at: write there, for example, %s`, path, adminExample)
}

// adminExample is what to write for there to be a place to ask at.
const adminExample = `admin: {bind: "unix:/run/penstock/admin.sock"}`

// failed shows what an error has to say beside its one line.
func (e *env) failed(err error) error {
	text := ""
	if bad, ok := errors.AsType[*admin.ConfigError](err); ok {
		text = bad.Text
	} else if refused, ok := errors.AsType[*admin.Refusal](err); ok {
		text = refused.Details
	}
	if text == "" {
		return err
	}
	fmt.Fprint(e.stderr, display.Lines(text))
	return exitCode(exitError)
}
