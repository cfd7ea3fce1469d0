package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/cli"
)

// TestCommandsOverTCP: commands show the credentials of the configuration, of their flags, or of the environment.
func TestCommandsOverTCP(t *testing.T) {
	t.Parallel()

	dir, at, plainAt := t.TempDir(), "127.0.0.1:"+sockets.Port(t), "127.0.0.1:"+sockets.Port(t)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, key := certificate.New(t, "penstock.test")
	opsCert, opsKey := certificate.New(t, "ops")
	ca, key := write("a.pem", cert), write("a.key", key)
	opsCert, opsKey = write("c.pem", opsCert), write("c.key", opsKey)
	read, change := write("read", "fedcba9876543210\n"), write("change", "0123456789abcdef\n")
	secured := startServing(t, fmt.Sprintf("admin: {bind: %q, read_token: 'file:%s', change_token: 'file:%s', tls: {cert: %q, key: %q, client_ca: %q}}\n", at, read, change, ca, key, opsCert)+oneListener)
	plain := startServing(t, fmt.Sprintf("admin: {bind: %q, change_token: 'file:%s'}\n", plainAt, change)+oneListener)
	for _, x := range []struct {
		code int
		want string // of the log, or of the complaint
		args []string
	}{
		{cli.ExitOK, `"by":"certificate=own"`, []string{"--config", secured.file}},
		{cli.ExitOK, `"by":"token=change"`, []string{"--config", plain.file}},
		{cli.ExitError, "it answers by TLS alone: write --ca FILE", []string{"--admin", at}},
		{cli.ExitError, "a token is needed: write --token-file FILE", []string{"--admin", plainAt}},
		{cli.ExitError, "a token or a certificate is needed", []string{"--admin", at, "--ca", ca}},
		{cli.ExitError, "this token reads, and changes nothing", []string{"--admin", at, "--ca", ca, "--token-file", read}},
		{cli.ExitOK, `"by":"token=change"`, []string{"--admin", at, "--ca", ca, "--token-file", change}},
		{cli.ExitOK, `"by":"certificate=CN=ops"`, []string{"--admin", at, "--ca", ca, "--cert", opsCert, "--key", opsKey}},
		{cli.ExitError, "certificate", []string{"--admin", at, "--ca", opsCert, "--token-file", change}},
		{cli.ExitUsage, "a certificate and its key go together", []string{"--admin", at, "--ca", ca, "--cert", opsCert}},
		{cli.ExitUsage, "a certificate is shown with TLS alone: write --ca FILE", []string{"--admin", at, "--cert", opsCert, "--key", opsKey}},
		{cli.ExitUsage, "192.0.2.1:9 is another machine", []string{"--admin", "192.0.2.1:9", "--token-file", change}},
		{cli.ExitUsage, "--token-file: open ", []string{"--admin", at, "--ca", ca, "--token-file", filepath.Join(dir, "none")}},
	} {
		of := secured
		if x.args[1] == plain.file {
			of = plain
		}
		before, _ := of.stderr.text()
		code, _, complaint := call(append([]string{"reload"}, x.args...)...)
		said := complaint
		if x.code == cli.ExitOK && code == x.code { // the log comes after the answer
			if _, err := of.stderr.wait(regexp.QuoteMeta(x.want), 1+strings.Count(before, x.want), of.done); err != nil {
				t.Errorf("%q: %v", x.args, err)
			}
			said = x.want
		}
		after, _ := of.stderr.text()
		if code != x.code || !strings.Contains(said, x.want) {
			t.Errorf("%q: %d, %s%s", x.args, code, complaint, after[len(before):])
		}
	}
	variables := map[string]string{"PENSTOCK_ADMIN": at, "PENSTOCK_CA": ca, "PENSTOCK_TOKEN_FILE": read}
	var out, complaint strings.Builder
	e := &cli.Env{Args: []string{"status"}, Stdout: &out, Stderr: &complaint, Getenv: func(name string) string { return variables[name] }}
	if code := run(e); code != cli.ExitOK || !strings.Contains(out.String(), "listener     web") {
		t.Errorf("by the environment: %d, %s%s", code, &out, &complaint)
	}
}

// TestPrivateDirectoryWithoutVariables: where no variable names a directory, the last one is made for this user
// alone, or used if it is this user's. Another file in its place is not, nor a link, which somebody else may
// turn.
func TestPrivateDirectoryWithoutVariables(t *testing.T) {
	t.Parallel()

	env := func(string) (string, bool) { return "", false }
	dir := filepath.Join(t.TempDir(), "penstock")
	for range 2 {
		if got, err := privateDirectory(env, dir); got != dir || err != nil {
			t.Fatal(got, err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info.Mode(), err)
	}
	link, file := filepath.Join(t.TempDir(), "link"), filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.Symlink(dir, link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	others := []string{link, file, filepath.Join(dir, "not", "there")}
	if os.Geteuid() != 0 {
		others = append(others, "/")
	}
	for _, last := range others {
		if got, err := privateDirectory(env, last); !errors.Is(err, errNoDirectory) {
			t.Errorf("%s: %q, %v", last, got, err)
		}
	}
}

// TestDirectoriesOfSockets: a directory that is a link, that others may write to, or that is another user's has no
// private socket.
func TestDirectoriesOfSockets(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	env := func(path string) func(string) (string, bool) {
		return func(name string) (string, bool) { return path, name == "RUNTIME_DIRECTORY" }
	}
	made := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	own, link, file := made("own", 0o755), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	if err := errors.Join(os.Symlink(own, link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	bad := []string{link, file, made("group", 0o770), made("all", 0o707), made("sticky", 0o777|os.ModeSticky)}
	if os.Geteuid() == 0 {
		other := made("other", 0o700)
		if err := os.Chown(other, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		bad = append(bad, other)
	}
	for _, path := range bad {
		if bind, err := privateAddress(env(path), "/etc/p.yaml"); !errors.Is(err, errDirectory) {
			t.Errorf("%s: %s, %v", path, bind, err)
		}
	}
	if _, err := privateAddress(env(own), "/etc/p.yaml"); err != nil {
		t.Error(err)
	}
	if _, err := privateAddress(env(filepath.Join(dir, "none")), "/etc/p.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}

// TestOwnersOfFoundSockets: a user whom root has given a directory may serve there, and nobody whose directory is
// anywhere else.
func TestOwnersOfFoundSockets(t *testing.T) {
	t.Parallel()

	if os.Geteuid() != 0 {
		t.Skip("only root may give a directory away")
	}
	dir := t.TempDir()
	for name, x := range map[string]struct {
		parent, mode os.FileMode
		of           int
		want         uint32
	}{
		"a service":       {0o755, 0o750, 0, 12345},
		"open to others":  {0o755, 0o770, 0, 0},
		"below others":    {0o777, 0o750, 0, 0},
		"below another's": {0o755, 0o750, 12346, 0},
	} {
		parent := filepath.Join(dir, name)
		service := filepath.Join(parent, "penstock")
		err := errors.Join(os.MkdirAll(service, 0o700), os.Chown(service, 12345, 12345), os.Chown(parent, x.of, 0), os.Chmod(service, x.mode), os.Chmod(parent, x.parent))
		if err != nil {
			t.Fatal(err)
		}
		if as := privateCredentials("unix:" + filepath.Join(service, "a-01234567.sock")); !as.Known || as.Owner != x.want {
			t.Errorf("%s: %+v", name, as)
		}
	}
}

// implicit makes a directory the current one, with a configuration that no command line names.
func implicit(t *testing.T, text string) {
	t.Helper()
	t.Chdir(t.TempDir())
	before := defaultConfigs
	t.Cleanup(func() { defaultConfigs = before })
	defaultConfigs = []string{filepath.Join(t.TempDir(), "penstock.yaml"), before[1]}
	if err := os.WriteFile(before[1], []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// contacts closes the first connection to a listener, and sends whether there was one before the end of the listener.
func contacts(l net.Listener) <-chan bool {
	made := make(chan bool, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			conn.Close()
		}
		made <- err == nil
	}()
	return made
}

// TestImplicitFile: a file of the current directory that nobody has named leads to no address of TCP, has no
// variable and no secret read, and completion is silent about it.
func TestImplicitFile(t *testing.T) {
	cert, key := certificate.New(t, "127.0.0.1")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{
		"admin: {bind: %q, change_token: '${SECRET}'}\n",
		"admin: {bind: %q, read_token: 'file:" + secret + "'}\n",
		"admin: {bind: %q, change_token: '${SECRET}', tls: {cert: a.pem, key: a.key}}\n",
		"x: [\nadmin: {bind: %q, change_token: '${SECRET}'}\n",
	} {
		for _, args := range [][]string{{"status"}, {"reload"}, {"top", "--once"}, {"__complete", "--", "status", "--listener", ""}} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			asked := contacts(l)
			implicit(t, fmt.Sprintf(file, l.Addr()))
			for name, text := range map[string]string{"a.pem": cert, "a.key": key} {
				if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out, complaint strings.Builder
			env := map[string]string{"SECRET": "0123456789abcdef", "PENSTOCK_TOKEN_FILE": secret}
			code := run(&cli.Env{Args: args, Stdout: &out, Stderr: &complaint, Getenv: func(name string) string { return env[name] }})
			l.Close()
			switch complete := args[0] == "__complete"; {
			case <-asked:
				t.Errorf("%s%v: it was asked", file, args)
			case complete && (code != cli.ExitOK || complaint.String() != ""):
				t.Errorf("%s%v: exit code %d, %s", file, args, code, &complaint)
			case !complete && (code != cli.ExitError || !strings.Contains(complaint.String(), "write --config penstock.yaml if you trust that file, or --admin ADDRESS")):
				t.Errorf("%s%v: exit code %d, %s", file, args, code, &complaint)
			}
		}
	}
	implicit(t, "admin: {bind: 'unix:/run/${SECRET}'}\n")
	if code, _, complaint := call("status"); code != cli.ExitError || !strings.Contains(complaint, "or --config penstock.yaml, which has its variables read") {
		t.Errorf("a variable: exit code %d, %s", code, complaint)
	}
}
