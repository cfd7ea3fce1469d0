package main

import (
	"fmt"
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
