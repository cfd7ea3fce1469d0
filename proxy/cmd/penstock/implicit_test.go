package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/proxy/cli"
)

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
