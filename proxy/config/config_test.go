package config_test

import (
	"slices"
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
		{"include: [sub.yaml]\n" + admin, "", "/etc/sub.yaml:1:8: admin is also in /etc/p.yaml:2:8"},
		{"admin: {bind: 'unix:/${NOT}', bond: 1}\n", "", "/etc/p.yaml:1:22: the variable NOT is not set in the environment"},
		{"admin: {bind: ':9000'}\n", "", "/etc/p.yaml:1:15: :9000 is open to other machines"},
		{"admin: {}\n", "auto", ""},
		{"admin: {bind: '127.0.0.1:1'\n", "", "/etc/p.yaml:1:8: "},
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

// limited is a file with limits, in its first line.
func limited(limits string) string { return "limits: {" + limits + "}" + smallest }

// TestPlacement: the values of limits.loops and limits.memory. The machine has CPUs 0 to 7, the
// last four of them on node 1.
func TestPlacement(t *testing.T) {
	for text, want := range map[string]struct {
		cpus  string
		loops int // where there are 6 by default
	}{
		"loops: {affinity: off}":                     {"", 6},
		"loops: {affinity: []}":                      {"", 6},
		"loops: {affinity: 3}":                       {"3", 1},
		"loops: {affinity: [2, 0]}":                  {"0,2", 2},
		"loops: {affinity: 0-3}":                     {"0-3", 4},
		"loops: {affinity: '0-1,4'}":                 {"0-1,4", 3},
		"loops: {affinity: [0-1, 1-2, 7]}":           {"0-2,7", 4},
		"loops: {affinity: 0-7}":                     {"0-7", 6},
		"loops: {count: 2, affinity: 0-3}":           {"0-3", 2},
		"loops: {count: 1}":                          {"", 1},
		"memory: {numa: 1}, loops: {affinity: 3-4}":  {"3-4", 2},
		"memory: {huge_pages: off, numa: off}":       {"", 6},
		"memory: {huge_pages: require, mlock: true}": {"", 6},
	} {
		cfg := load(t, limited(text))
		unsuspected(t, cfg)
		l := &cfg.Limits.Loops
		if got := l.CPUs().String(); got != want.cpus || l.Number(6) != want.loops {
			t.Errorf("%s: CPUs %q, %d loops; want %q, %d", text, got, l.Number(6), want.cpus, want.loops)
		}
	}
	m := load(t, limited("memory: {numa: 1}")).Limits.Memory
	if n, numbered := m.NUMA.Number(); n != 1 || !numbered || m.HugePages != config.HugePagesAuto || m.Mlock {
		t.Errorf("%+v", m)
	}
	if _, numbered := config.NodeAuto.Number(); numbered {
		t.Error("auto is a number")
	}
}

func TestBadPlacement(t *testing.T) {
	for text, want := range map[string]string{
		"loops: {affinity: 8}":      "1:28: this machine has no CPU 8 | write 0-7",
		"loops: {affinity: 6-12}":   "1:28: this machine has no CPU 8-12 | write 6-7",
		"loops: {affinity: [0, 9]}": "1:32: this machine has no CPU 9 | write 0-7",
		"loops: {affinity: -1}":     `1:28: "-1" is not a CPU | write a CPU such as 0, a range such as 0-3, or a list of them`,
		"loops: {affinity: [off]}":  "1:29: off stands for the whole list | write affinity: off without a list",
		"loops: {affinity: ''}":     `1:28: "" is not a CPU | write a CPU such as 0, a range such as 0-3, or a list of them`,
		"loops: {affinity: {}}":     "1:28: affinity must be a list, not a group of keys | write affinity: 0-3",
		"memory: {numa: 2}":         "1:25: this machine has no NUMA node 2 | write one of 0-1, auto or off",
		"memory: {numa: near}":      `1:25: "near" is not a NUMA node | write the number of a node such as 0, auto or off`,
		"memory: {numa: 1024}":      `1:25: "1024" is not a NUMA node | write the number of a node such as 0, auto or off`,
	} {
		_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": limited(text)}, "/etc/p.yaml", nil)
		got := shorts(problems)
		if strings.Join(got, "\n") != want {
			t.Errorf("%s\n got %s\nwant %s", text, strings.Join(got, "\n     "), want)
		}
	}
}

func TestDoubtfulPlacement(t *testing.T) {
	warned(t, limited("loops: {count: 9}"), "1:25: 9 loops share 8 CPUs | write count: 8 or less")
	warned(t, limited("loops: {count: 2, affinity: 5}"), "1:25: 2 loops share one CPU | write count: 1 or less")
	warned(t, limited("memory: {numa: 1}, loops: {affinity: 0-2}"),
		`1:25: none of the CPUs 0-2 is on node 1: all of this memory would be remote | write another node, or affinity: "4-7"`)
}

// TestUnreadMachine: a CPU and a node that are not known to exist are not said to exist.
func TestUnreadMachine(t *testing.T) {
	tree := config.Tree{"/etc/p.yaml": limited("memory: {numa: 5}, loops: {affinity: 60}"), "/unreadable": ""}
	got := shorts(loadTree(t, tree).Warnings)
	const fix = ": permission denied | look into /sys/devices/system on the machine where penstock will run"
	want := []string{"1:25: it is unknown whether this machine has NUMA node 5" + fix, "1:47: it is unknown whether this machine has CPU 60" + fix}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	tree = config.Tree{"/etc/p.yaml": limited("memory: {numa: 0}"), "/flat": ""}
	_, problems := config.LoadTree(tree, "/etc/p.yaml", nil)
	if len(problems) != 1 || short(problems[0]) != "1:25: this kernel has no NUMA nodes | write numa: off, or leave it out" {
		t.Errorf("%v", problems)
	}
}

// TestLasting: a change of these keys says that it takes effect at a restart, and of no other.
func TestLasting(t *testing.T) {
	old, next := load(t, limited("connections: 5")), load(t, limited("connections: 6, loops: {affinity: [0, 2-3]}, memory: {mlock: true}"))
	const want = "limits changed: connections: 5 → 6, memory.mlock: false → true (after a restart), loops.affinity: [] → [0, 2-3] (after a restart)"
	if got := config.Diff(old, next); len(got) != 1 || got[0].String() != want {
		t.Errorf("got %v, want %s", got, want)
	}
	const initial = "limits changed: connections: 0 → 6, memory.mlock: false → true, loops.affinity: [] → [0, 2-3]"
	if got := config.Initial(next); len(got) == 0 || got[0].String() != initial {
		t.Errorf("at first it is %v, want %s", got, initial)
	}
	for _, c := range config.Initial(load(t, limited(""))) {
		if c.Action != config.Added {
			t.Errorf("defaults are a change: %v", c)
		}
	}
	if keys := old.Limits.Lasting(&next.Limits); len(keys) != 2 || keys[0].Key != "memory.mlock" || keys[1].Key != "loops.affinity" {
		t.Errorf("%v", keys)
	}
	if keys := next.Limits.Lasting(&next.Limits); len(keys) != 0 {
		t.Errorf("against itself: %v", keys)
	}
}
