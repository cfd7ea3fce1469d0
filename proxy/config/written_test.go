package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock/penstock/proxy/config"
)

// TestWrittenFiles: no file that the process writes is one that is named for something else, whichever path leads to it.
func TestWrittenFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, "a")
	for name, text := range map[string]string{
		"cert.pem": cert, "key.pem": key, "token": "s3cret\n", "sorry": "sorry\n", "eps.yaml": "['127.0.0.1:1']\n", "more.yaml": "{}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"link.pem": "key.pem", "sub": ".", "later.sock": "sub/state"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	const (
		tls     = "\nlisteners: [{name: a, bind: ':1', upstream: u, tls: {certificates: [{cert: cert.pem, key: key.pem}], client_ca: cert.pem}}]\nupstreams: [{name: u, endpoints: ['h:1']}]"
		state   = "changes by hand would be kept in DIR/"
		log     = "lines of the session log would go to DIR/"
		socket  = "a socket would be made at "
		another = " | write another path"
	)
	plain := "\nlisteners: [{name: a, bind: ':1', upstream: u}]\nupstreams: [{name: u, endpoints: ['h:1']}]"
	for _, c := range []struct{ text, want string }{
		{"state_file: key.pem" + tls, "1:13: " + state + "key.pem, which key in DIR/p.yaml:2:91 names too" + another},
		{"state_file: ./sub/../key.pem" + tls, "1:13: " + state + "key.pem, which key in DIR/p.yaml:2:91 names too" + another},
		{"state_file: link.pem" + tls, "1:13: " + state + "link.pem, which key in DIR/p.yaml:2:91 names too" + another},
		{"state_file: sub/key.pem" + tls, "1:13: " + state + "sub/key.pem, which key in DIR/p.yaml:2:91 names too" + another},
		{"session_log: {to: key.pem}" + tls, "1:19: " + log + "key.pem, which key in DIR/p.yaml:2:91 names too" + another},
		{"state_file: state\nsession_log: {to: state}" + plain, "2:19: " + log + "state, which state_file in DIR/p.yaml:1:13 names too" + another},
		{"state_file: p.yaml" + plain, "1:13: " + state + "p.yaml, which is a file of the configuration" + another},
		{"session_log: {to: more.yaml}\ninclude: [more.yaml]" + plain, "1:19: " + log + "more.yaml, which is a file of the configuration" + another},
		{"state_file: state.yaml\ninclude: ['m*.yaml', 's*.yaml']" + plain, "1:13: " + state + "state.yaml, which include reads as configuration | write a path in another directory"},
		{"state_file: token\nmetrics: {bind: ':9', allow: [all], token: 'file:token'}" + plain, "1:13: " + state + "token, which token in DIR/p.yaml:2:44 names too" + another},
		{"state_file: state\nadmin: {bind: 'unix:DIR/later.sock'}" + plain, "2:15: " + socket + "DIR/later.sock, which state_file in DIR/p.yaml:1:13 names too" + another},
		{"state_file: eps.yaml\nlisteners: [{name: a, bind: ':1', upstream: u}]\nupstreams: [{name: u, discover: {file: {path: eps.yaml}}}]", "1:13: " + state + "eps.yaml, which path in DIR/p.yaml:3:47 names too" + another},
		{"session_log: {to: sorry}\nlisteners: [{name: a, bind: ':1', upstream: u}]\nupstreams: [{name: u, endpoints: ['h:1'], fallback: {respond: sorry}}]", "1:19: " + log + "sorry, which respond in DIR/p.yaml:3:63 names too" + another},
		{"state_file: state\nlisteners: [{name: a, bind: ':1', upstream: u}]\nupstreams: [{name: u, endpoints: ['unix:DIR/state']}]", "1:13: " + state + "state, which address in DIR/p.yaml:3:35 names too" + another},
		{"listeners: [{name: a, bind: 'unix:DIR/key.pem', upstream: u,\ntls: {certificates: [{cert: cert.pem, key: key.pem}]}}]\nupstreams: [{name: u, endpoints: ['h:1']}]", "1:29: " + socket + "DIR/key.pem, which key in DIR/p.yaml:2:44 names too" + another},
		// One file may be read for two things, and a listener may be an endpoint of another one.
		{"state_file: state" + tls, ""},
		{"listeners: [{name: a, bind: ':1', upstream: u}, {name: b, bind: 'unix:DIR/b', upstream: v}]\nupstreams: [{name: u, endpoints: ['unix:DIR/b']}, {name: v, endpoints: ['h:1']}]", ""},
	} {
		text := strings.ReplaceAll(c.text, "DIR", dir)
		path := filepath.Join(dir, "p.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, problems := config.Load(path, nil)
		var got []string
		for _, p := range problems {
			got = append(got, strings.ReplaceAll(short(p), dir, "DIR"))
		}
		if d := cmp.Diff(c.want, strings.Join(got, "\n")); d != "" {
			t.Errorf("%s\n%s", c.text, d)
		}
	}
}

// TestDefaultStateFile: the file of changes by hand in systemd's directory is no session log either.
func TestDefaultStateFile(t *testing.T) {
	env := func(name string) (string, bool) { return "/var/lib/p:/q", name == "STATE_DIRECTORY" }
	c, problems := config.Parse("/etc/p.yaml", []byte("session_log: {to: /var/lib/p/penstock.state}\n"+listener("")), env)
	if c != nil || len(problems) != 1 || short(problems[0]) != "1:19: changes by hand would be kept in /var/lib/p/penstock.state, the default of state_file, and to names it too | write another path" {
		t.Error(problems)
	}
	if c, problems = config.Parse("/etc/p.yaml", []byte(listener("")), env); problems != nil || c.StatePath(env) != "/var/lib/p/penstock.state" || c.StatePath(nil) != "" {
		t.Error(problems)
	}
}
