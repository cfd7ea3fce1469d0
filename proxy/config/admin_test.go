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
		{"listeners: [{name: '${NOT}'}]\n", "", ""},
		{"include: ['${DIR}/sub.yaml']\n", "", "/etc/p.yaml:1:12: the variable DIR is not set in the environment"},
		{"include: [none.yaml]\n", "", "/etc/p.yaml:1:11: there is no file /etc/none.yaml"},
		{"include: [sub.yaml]\n" + admin, "", "/etc/sub.yaml:1:8: admin is in /etc/p.yaml:2:8 too"},
		{"admin: {bind: 'unix:/${NOT}', bond: 1}\n", "", "/etc/p.yaml:1:22: the variable NOT is not set in the environment"},
		{"admin: {bind: ':9000'}\n", "", "/etc/p.yaml:1:15: :9000 is open to other machines"},
		{"admin: {}\n", "", "/etc/p.yaml:1:8: bind is missing"},
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
		bind, problems := config.AdminBindTree(config.Tree{
			"/etc/p.yaml": c.text, "/etc/sub.yaml": "admin: {bind: '127.0.0.1:9000'}\nupstreams: 5\n",
		}, "/etc/p.yaml", variables("NAME", "p"))
		first := ""
		if len(problems) > 0 {
			first = problems[0].Error()
		}
		if bind != c.bind || !strings.HasPrefix(first, c.problem) || (first == "") != (c.problem == "") {
			t.Errorf("%s is asked at %q, %v, want %q, %s", c.text, bind, problems, c.bind, c.problem)
		}
	}
}
