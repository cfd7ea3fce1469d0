package config_test

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

// TestAdminBind: reading the admin address needs neither the variables, the certificates nor
// the secrets of the process, nor a file without mistakes.
func TestAdminBind(t *testing.T) {
	const admin = "admin: {bind: 'unix:/run/${NAME}.sock?mode=0600'}\n"
	for _, c := range []struct {
		text, bind, problem string
	}{
		{"x-y: 1\n" + admin + `limits: {connections: '${LIMIT}'}
include: ['${DIR}/*.yaml', none.yaml]
listeners:
- {name: a, bind: '${PORT}', upstream: nobody, tls: {certificates: [{cert: none, key: none}]}, typo: 1}
upstreams:
- {name: u, endpoints: ['h:1'], health_check: {send: 'file:none', expect: '${SECRET}'}}
`, "unix:/run/p.sock?mode=0600", ""},
		{"include: [sub.yaml]\n", "127.0.0.1:9000", ""},
		{"include: ['${DIR}/sub.yaml', sub.yaml]\n", "127.0.0.1:9000", ""},
		{"listeners: [{name: '${NOT}'}]\n", "auto", ""},
		{"admin: off\nx: 1\n", "", ""},
		{"admin: {group: ops}\n", "auto", ""},
		{"admin: {bind: auto}\n", "auto", ""},
		{"include: ['${DIR}/sub.yaml']\n", "", "/etc/p.yaml:1:12: the variable DIR is not set in the environment"},
		{"include: [none.yaml]\n", "", "/etc/p.yaml:1:11: there is no file /etc/none.yaml"},
		{"include: [sub.yaml]\n" + admin, "", "/etc/sub.yaml:1:8: admin is in /etc/p.yaml:2:8 too"},
		{"admin: {bind: 'unix:/${NOT}', bond: 1}\n", "", "/etc/p.yaml:1:22: the variable NOT is not set in the environment"},
		{"admin: {bind: ':9000'}\n", "", "/etc/p.yaml:1:15: :9000 is open to other machines"},
		{"admin: {}\n", "auto", ""},
		{"admin: {bind: '127.0.0.1:1'\n", "", "/etc/p.yaml:2:1: "},
		// A file that is not YAML as a whole is read by section.
		{admin + "x: [\n", "unix:/run/p.sock?mode=0600", ""},
		{"x: [\n" + admin, "unix:/run/p.sock?mode=0600", ""},
		{"x: *.a\n\"admin\":\n\n  # here\n  bind: 127.0.0.1:9001 # there\n# or\nlisteners:\n- {a: b]\n", "127.0.0.1:9001", ""},
		{"include:\n- sub.yaml\nx: [\n", "127.0.0.1:9000", ""},
		{"x: [\n" + admin + "include: [\n", "unix:/run/p.sock?mode=0600", ""},
		{"x: [\n" + admin + "include: [sub.yaml]\n", "", "/etc/p.yaml:"},
		{admin + "x: [\n" + admin, "", "/etc/p.yaml:"},
		{"x: \"\n" + admin, "", "/etc/p.yaml:"},
		{"x: '\n" + admin + "\ny: [", "", "/etc/p.yaml:"},
		{"{\n\"admin\": {\"bind\": \"127.0.0.1:1\"},\n\"x\": [\n", "", "/etc/p.yaml:"},
		{"# admin: {bind: '127.0.0.1:1'}\n x:\n   admin: {bind: '127.0.0.1:1'}\n y: [\n", "", "/etc/p.yaml:"},
		{"admin:\n\tbind: '127.0.0.1:1'\n", "", "/etc/p.yaml:2:1: "},
		{"admin: {bind: ':9000'}\nx: [\n", "", "/etc/p.yaml:1:15: :9000 is open"},
	} {
		found, problems := config.AdminBindTree(config.Tree{
			"/etc/p.yaml": c.text, "/etc/sub.yaml": "admin: {bind: '127.0.0.1:9000'}\nupstreams: 5\n",
		}, "/etc/p.yaml", variables("NAME", "p"))
		bind, first := "", ""
		if found != nil {
			bind = found.Bind.String()
		}
		if len(problems) > 0 {
			first = problems[0].Error()
		}
		if bind != c.bind || !strings.HasPrefix(first, c.problem) || (first == "") != (c.problem == "") {
			t.Errorf("%s is asked at %q, %v, want %q, %s", c.text, bind, problems, c.bind, c.problem)
		}
	}
}

// TestAdminPlace: the address of a file that nobody has named is found without its secrets and variables.
func TestAdminPlace(t *testing.T) {
	for text, want := range map[string]string{
		"admin: {bind: 'unix:/run/p.sock', read_token: 'file:/etc/secret', change_token: '${SECRET}'}\n":        "unix:/run/p.sock",
		"admin: {bind: '127.0.0.1:1', change_token: 'file:/etc/secret', tls: {cert: a, key: b}}\n":              "127.0.0.1:1",
		"admin: {<<: {change_token: 'file:/etc/secret', bind: 'unix:/run/p.sock'}, read_tokn: 'file:/etc/s'}\n": "unix:/run/p.sock",
		"admin: {bind: 'unix:/run/${SECRET}'}\n":                                                                "",
		"include: ['/etc/${SECRET}']\n":                                                                         "",
		"listeners: []\n":                                                                                       "auto",
	} {
		read := ""
		tree := config.Tree{"/etc/p.yaml": text, "/etc/secret": "0123456789abcdef", "/etc/s": "0123456789abcdef"}
		found, problems := config.AdminPlaceTree(tree, "/etc/p.yaml")
		bind := ""
		if found != nil {
			bind, read = found.Bind.String(), found.ReadToken.Value+found.ChangeToken.Value
		}
		if bind != want || read != "" || (bind == "") != (len(problems) > 0) {
			t.Errorf("%s is asked at %q, with %q, %v; want %q", text, bind, read, problems, want)
		}
	}
}

// TestAdminBindShowsNoLine: a mistake in a file that is only looked through for the address has no text of the file.
func TestAdminBindShowsNoLine(t *testing.T) {
	for _, secret := range []string{"a: *hunter2\n", "hunter2: [\n", "- hunter2\n", "hunter2\n", "a: 'hunter2\n", "hunter2: a: b\n", "!hunter2 [\n", "%hunter2\n", "a: \x01hunter2\n", "{hunter2\n", "%YAML 9.hunter2\n---\n"} {
		for of, tree := range map[string]config.Tree{
			"included":   {"/etc/p.yaml": "include: [secret]\n", "/etc/secret": secret},
			"in a chain": {"/etc/p.yaml": "include: [q.yaml]\n", "/etc/q.yaml": "include: [secret]\n", "/etc/secret": secret},
			"itself":     {"/etc/p.yaml": secret},
		} {
			_, named := config.AdminBindTree(tree, "/etc/p.yaml", variables())
			_, implicit := config.AdminPlaceTree(tree, "/etc/p.yaml")
			if of == "itself" { // its name was given
				for i := range named {
					named[i].Message = ""
				}
			}
			for _, p := range append(named, implicit...) {
				if strings.Contains(p.String(), "hunter2") {
					t.Errorf("%s: %s", of, p.String())
				}
			}
		}
	}
}
