package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

// TestCredentials: a token or a header comes from a file that other users cannot read, or from a variable, and is one
// line. No message and no excerpt has one that is refused.
func TestCredentials(t *testing.T) {
	tree := config.Tree{
		"/etc/good": "s3cret-good\n", "/etc/two": "s3cret-a\ns3cret-b\n", "/etc/empty": "\n", "/etc/none": "",
		"/etc/spaced": "s3cret \n", "/etc/wide": "s3cret-ö\n", "/etc/public": "s3cret\n", "/etc/c$d/public": "s3cret",
	}
	const literal = " is written in the configuration, which more users may read | write file:PATH or ${VARIABLE}"
	for value, want := range map[string]string{
		"'file:good'":             "",
		"'${S}'":                  "",
		"'Bearer ${S}'":           "",
		"s3cret":                  literal,
		"'Bearer s3cret'":         literal,
		"'file:two'":              " has 2 lines | leave one line in /etc/two",
		"'file:empty'":            " is empty | write it into /etc/empty, or leave it out",
		"'file:none'":             " is empty | write it into /etc/none, or leave it out",
		"'${EMPTY}'":              " is empty | write it into ${EMPTY}, or leave it out",
		"'${LINES}'":              " has 2 lines | leave one line in ${LINES}",
		"'file:spaced'":           " has spaces at its beginning or its end | leave them out of /etc/spaced",
		"'file:wide'":             " has characters that a header cannot have | write letters, digits and signs of ASCII",
		"'file:public'":           " (mode 0644) | chmod o= /etc/public",
		"'file:c$$d/public'":      " (mode 0644) | chmod o= /etc/c$d/public",
		"6273841":                 " is text, not a number | write it in quotes",
		"'file:s3cret-elsewhere'": "file does not exist | write the name of a file that is there",
	} {
		for _, section := range []string{
			"metrics: {bind: ':9464', allow: [10.0.0.0/8], tls: {cert: a, key: k}, token: " + value + "}",
			"traces: {endpoint: 'https://c:4317', headers: [{name: Authorization, value: " + value + "}]}",
		} {
			tree["/etc/p.yaml"] = section + smallest
			tree["/etc/a"], tree["/etc/k"] = certificate(t, "a.example")
			_, problems := config.LoadTree(tree, "/etc/p.yaml", variables("S", "s3cret", "EMPTY", "", "LINES", "s3cret\ns3cret"))
			var got []string
			for _, p := range problems {
				got = append(got, p.Message+" | "+p.Fix)
				if text := p.String() + p.Error(); strings.Contains(text, "s3cret") && !strings.Contains(value, "elsewhere") || strings.Contains(text, "6273841") {
					t.Errorf("%s: a message has the secret: %s", value, text)
				}
			}
			if text := strings.Join(got, "\n"); want == "" && text != "" || !strings.HasSuffix(text, want) {
				t.Errorf("%s\n got %q\nwant %q", section, got, want)
			}
		}
	}
}

// TestCredentialFiles: the mode is that of the file itself.
func TestCredentialFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		path := filepath.Join(dir, name)
		_ = os.Remove(path) // one without the right to write
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	write("penstock.yaml", "metrics: {bind: '127.0.0.1:0', allow: [127.0.0.0/8], token: 'file:token'}"+smallest, 0o644)
	for mode, good := range map[os.FileMode]bool{0o600: true, 0o440: true, 0o644: false, 0o602: false} {
		write("token", "s3cret\n", mode)
		_, problems := config.Load(filepath.Join(dir, "penstock.yaml"), variables())
		complains := slices.ContainsFunc(problems, func(p config.Problem) bool {
			return strings.Contains(p.Message, "every user of this machine may use") && strings.HasPrefix(p.Fix, "chmod o= ")
		})
		if complains == good {
			t.Errorf("mode %#o: %v", mode, problems)
		}
	}
}

// TestCollectorURL: no message has the password of a URL.
func TestCollectorURL(t *testing.T) {
	for _, url := range []string{"http://u:s3cret@c:1", "https://s3cret@c", "http://u:s3cret@c:port", "http://u:s3cret@", "http://c:1/?key=s3cret", "http://c:1/#s3cret"} {
		_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": traced("endpoint: '" + url + "'")}, "/etc/p.yaml", variables())
		if len(problems) != 1 || strings.Contains(problems[0].String()+problems[0].Error(), "s3cret") {
			t.Errorf("%s: %v", url, problems)
		}
	}
}

// TestPasswordOfACheck: a check that logs in with a literal password is warned of, without showing it.
func TestPasswordOfACheck(t *testing.T) {
	for send, want := range map[string]int{`"AUTH s3cret\r\nPING\r\n"`: 1, `"PING\r\nPASS s3cret\r\n"`: 1, `"AUTH\r\n"`: 0, `"PING\r\n"`: 0, `"${S}"`: 0} {
		text := "listeners: [{name: a, bind: ':1', upstream: u}]\nupstreams: [{name: u, endpoints: ['h:1'], health_check: {send: " + send + ", expect: ok}}]\n"
		warnings := load(t, text, "S", "AUTH s3cret").Warnings
		if len(warnings) != want {
			t.Errorf("%s: %v", send, warnings)
		}
		for _, w := range warnings {
			if strings.Contains(w.String(), "s3cret") {
				t.Errorf("it is shown: %v", w.String())
			}
		}
	}
}
