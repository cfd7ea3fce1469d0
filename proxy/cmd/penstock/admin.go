package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
)

// adminFlags select the process that a command connects to.
type adminFlags struct {
	Config *string `placeholder:"FILE" help:"The configuration of the process to be asked: it says where. (default: /etc/penstock/penstock.yaml, or else ./penstock.yaml)"`
	accessFlags

	path string // of the configuration that has said where to ask, set by find
}

// processFlags are adminFlags of a command that takes no other arguments than the file.
type processFlags struct {
	File *string `arg:"" optional:"" placeholder:"FILE" help:"The same as --config."`
	adminFlags
}

// take has the file that was given be the configuration.
func (f *processFlags) take(command string) error {
	if f.File != nil && f.Config != nil {
		return cli.Usagef("%s: --config %s and %s: write one of them (see: penstock %[1]s --help)", command, *f.Config, *f.File)
	}
	f.Config = cmp.Or(f.Config, f.File)
	return nil
}

// ask is that of adminFlags.
func (f *processFlags) ask(e *cli.Env, command string, ask func(ctx context.Context, c *admin.Client) error) error {
	if err := f.take(command); err != nil {
		return err
	}
	return f.adminFlags.ask(e, command, ask)
}

// client is that of adminFlags.
func (f *processFlags) client(e *cli.Env, command string) (*admin.Client, error) {
	if err := f.take(command); err != nil {
		return nil, err
	}
	return f.adminFlags.client(e, command)
}

// ask calls ask with a client of the running process.
func (f *adminFlags) ask(e *cli.Env, command string, ask func(ctx context.Context, c *admin.Client) error) error {
	client, err := f.client(e, command)
	if err != nil {
		return failed(e, f.elsewhere(e, err))
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
	return failed(e, f.elsewhere(e, err))
}

// elsewhere returns an error that says where to ask, in place of one that nothing runs where the configuration
// says.
func (f *adminFlags) elsewhere(e *cli.Env, err error) error {
	if f.path != "" && (errors.Is(err, admin.ErrNotRunning) || errors.Is(err, errAdminOff)) {
		return elsewhere(e.Environment(), f.path, err)
	}
	return err
}

// client returns a client of that process.
func (f *adminFlags) client(e *cli.Env, command string) (*admin.Client, error) {
	if f.Admin != nil && *f.Admin == "" {
		return nil, cli.Usagef("%s: --admin is empty: write unix:/path, or host:port (see: penstock %[1]s --help)", command)
	}
	bind, as := f.address(e), new(admin.Credentials)
	if bind == "" || f.Config != nil && f.Admin == nil {
		var err error
		if bind, as, err = f.find(e, command); err != nil {
			return nil, err
		}
	}
	if err := f.complete(e, as); err != nil {
		return nil, cli.Usagef("%s: %w (see: penstock %[1]s --help)", command, err)
	}
	client, err := admin.NewClientAs(bind, as)
	if err != nil {
		return nil, cli.Usagef("%s: --admin: %w", command, err)
	}
	return client, nil
}

// find returns the address of the process with the configuration, and its credentials. Without a
// configuration it is the only process with a private socket.
func (f *adminFlags) find(e *cli.Env, command string) (string, *admin.Credentials, error) {
	path, err := configPath(command, f.Config, "--config FILE, or --admin ADDRESS")
	if err != nil {
		list := running(e.Environment())
		if f.Config != nil || len(list) == 0 {
			return "", nil, err
		}
		if len(list) > 1 {
			return "", nil, cli.Usagef("%s: several processes run: write %s", command, adminFlagsOf(list))
		}
		return list[0], privateCredentials(list[0]), nil
	}
	f.path = path
	if f.Config == nil && !filepath.IsAbs(path) {
		return implicitPlace(e, path)
	}
	section, problems := config.AdminBind(path, e.Environment())
	if bind, err := placeless(e, path, section, problems, fmt.Sprintf("correct %s: penstock check shows its lines", display.Text(path))); bind != "" || err != nil {
		return bind, privateCredentials(bind), err
	}
	if section.Bind.Auto() {
		bind, err := findPrivate(e.Environment(), path)
		return bind, privateCredentials(bind), err
	}
	return section.Bind.String(), ownCredentials(section), nil
}

// errImplicit is the error of a file that was not named, and whose admin address is no unix socket.
var errImplicit = errors.New("a file that was not named leads to a unix socket only, and its secrets and variables are not read")

// implicitPlace is find of the file of the current directory, which another user may have written.
func implicitPlace(e *cli.Env, path string) (string, *admin.Credentials, error) {
	section, problems := config.AdminPlace(path)
	bind, err := placeless(e, path, section, problems, fmt.Sprintf("--config %s, which has its variables read", path))
	switch {
	case bind != "" || err != nil:
		return bind, privateCredentials(bind), err
	case section.Bind.Auto():
		bind, err := findPrivate(e.Environment(), path)
		return bind, privateCredentials(bind), err
	case section.Bind.Address.Network != "unix":
		return "", nil, fmt.Errorf("%s names %s: %w: write --config %[1]s if you trust that file, or --admin ADDRESS", path, section.Bind, errImplicit)
	}
	return section.Bind.String(), &admin.Credentials{Known: true}, nil
}

// placeless is the address of the process of a configuration without a section of the admin API that can be read: the private
// socket depends on the path alone. Or else it is the error, with the addresses of those that run; none of both: there is
// a section.
func placeless(e *cli.Env, path string, section *config.Admin, problems []config.Problem, or string) (bind string, err error) {
	switch {
	case len(problems) > 0:
		if bind := privateOf(e.Environment(), path); bind != "" {
			return bind, nil
		}
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return findPrivate(e.Environment(), path)
		}
	case section == nil:
		return "", fmt.Errorf(`%s: %w, so there is no place to ask at: write there, for example, %s`, display.Text(path), errAdminOff, adminExample)
	default:
		return "", nil
	}
	err = badConfig(path, problems)
	if bad, ok := errors.AsType[*admin.ConfigError](err); ok {
		instead := "--admin ADDRESS"
		if at := listensElsewhere(searched(e.Environment()), path); at != "" {
			instead = "--admin " + at
		}
		bad.Text += fmt.Sprintf("where to ask is not known because of that: write %s, or %s\n", display.Text(instead), or)
		if run := others(e.Environment()); run != "" {
			bad.Text += run + "\n"
		}
	}
	return "", err
}

// errAdminOff is the error of a configuration without an admin endpoint.
var errAdminOff = errors.New("admin is off")

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
