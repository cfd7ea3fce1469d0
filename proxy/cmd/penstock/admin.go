package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
)

// adminFlags select the process that a command connects to.
type adminFlags struct {
	Config *string `placeholder:"FILE" help:"The configuration of the process to be asked: it says where. (default: /etc/penstock/penstock.yaml, or else ./penstock.yaml)"`
	Admin  *string `placeholder:"ADDR" help:"Where to ask instead: unix:/path, or host:port of this machine."`
}

// ask calls ask with a client of the running process.
func (f *adminFlags) ask(e *cli.Env, command string, ask func(ctx context.Context, c *admin.Client) error) error {
	bind, err := f.bind(e, command)
	if err != nil {
		return failed(e, err)
	}
	client, err := admin.NewClient(bind)
	if err != nil {
		return cli.Usagef("%s: --admin: %w", command, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- ask(ctx, client) }()
	select {
	case err = <-done:
	case <-e.Stops:
		cancel()
		if err = <-done; errors.Is(err, context.Canceled) {
			err = errors.New("interrupted before there was an answer")
		}
	}
	return failed(e, err)
}

// bind returns the admin address of that process.
func (f *adminFlags) bind(e *cli.Env, command string) (string, error) {
	if f.Admin != nil {
		return *f.Admin, nil
	}
	path, err := configPath(command, f.Config, "--config FILE, or --admin unix:/run/penstock/admin.sock")
	if err != nil {
		return "", err
	}
	bind, problems := config.AdminBind(path, e.Environment())
	if bind != "" {
		return bind, nil
	}
	if bad, ok := errors.AsType[*admin.ConfigError](badConfig(path, problems)); ok {
		bad.Text += fmt.Sprintf("where to ask is not known because of that: write --admin ADDRESS, for example --admin unix:/run/penstock/admin.sock, or correct %s\n", display.Text(path))
		return "", bad
	}
	return "", fmt.Errorf(`%s: no place to ask at: write there, for example, %s`, display.Text(path), adminExample)
}

// adminExample is the configuration of an admin socket, for error messages.
const adminExample = `admin: {bind: "unix:/run/penstock/admin.sock"}`

// failed prints the details of an error, if it has more than its one line.
func failed(e *cli.Env, err error) error {
	text := ""
	if bad, ok := errors.AsType[*admin.ConfigError](err); ok {
		text = bad.Text
	} else if refused, ok := errors.AsType[*admin.Refusal](err); ok {
		text = refused.Details
	}
	if text == "" {
		return err
	}
	fmt.Fprint(e.Stderr, display.Lines(text))
	return cli.ExitCode(cli.ExitError)
}
