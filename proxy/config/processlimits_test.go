package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

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
		"loops: {affinity: 8}":           "1:28: this machine has no CPU 8 | write 0-7",
		"loops: {affinity: 6-12}":        "1:28: this machine has no CPU 8-12 | write 6-7",
		"loops: {affinity: [0, 9]}":      "1:32: this machine has no CPU 9 | write 0-7",
		"loops: {affinity: -1}":          `1:28: "-1" is not a CPU | write a CPU such as 0, a range such as 0-3, or a list of them`,
		"loops: {affinity: 3-1}":         `1:28: "3-1" is not a CPU | write a CPU such as 0, a range such as 0-3, or a list of them`,
		"loops: {affinity: all}":         `1:28: "all" is not a CPU | write a CPU such as 0, a range such as 0-3, or a list of them`,
		"loops: {affinity: [off]}":       "1:29: off stands for the whole list | write affinity: off without a list",
		"loops: {affinity: ''}":          `1:28: "" is not a CPU | write a CPU such as 0, a range such as 0-3, or a list of them`,
		"loops: {affinity: 9999}":        `1:28: "9999" is not a CPU | write a CPU such as 0, a range such as 0-3, or a list of them`,
		"loops: {affinity: {}}":          "1:28: affinity is a list, not a group of keys | write affinity: 0-3",
		"loops: {count: -1}":             "1:25: count is -1, less than 0 | write 0 or more",
		"loops: {count: auto}":           `1:25: count is an integer: "auto" is not a whole number | write a whole number from 0 to 1024`,
		"loops: 4":                       "1:17: loops takes a group of keys, not a number | write {count: …}",
		"memory: {numa: 2}":              "1:25: this machine has no NUMA node 2 | write one of 0-1, auto or off",
		"memory: {numa: near}":           `1:25: "near" is not a NUMA node | write the number of a node such as 0, auto or off`,
		"memory: {numa: 1024}":           `1:25: "1024" is not a NUMA node | write the number of a node such as 0, auto or off`,
		"memory: {huge_pages: requires}": `1:31: huge_pages is one of auto, off, require, not "requires" | did you mean "require"?`,
		"memory: {huge_pages: 2MiB}":     `1:31: huge_pages is one of auto, off, require, not "2MiB" | write auto, off or require`,
		"memory: {mlock: off}":           `1:26: mlock is a boolean: "off" is not true or false | write false`,
		"memory: {hugepages: off}":       `1:19: unknown key "hugepages" | did you mean "huge_pages"?`,
	} {
		_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": limited(text)}, "/etc/p.yaml", nil)
		var got []string
		for _, p := range problems {
			got = append(got, short(p))
		}
		if strings.Join(got, "\n") != want {
			t.Errorf("%s\n got %s\nwant %s", text, strings.Join(got, "\n     "), want)
		}
	}
}

func TestDoubtfulPlacement(t *testing.T) {
	warned(t, limited("loops: {count: 9}"), "1:25: 9 loops share 8 CPUs | write count: 8 or less")
	warned(t, limited("loops: {count: 2, affinity: 5}"), "1:25: 2 loops share one CPU | write count: 1 or less")
	warned(t, limited("memory: {numa: 1}, loops: {affinity: 0-2}"),
		`1:25: none of the CPUs 0-2 is on node 1: all of this memory is remote | write another node, or affinity: "4-7"`)
}

// TestUnreadMachine: a CPU and a node that are not known to exist are not said to exist.
func TestUnreadMachine(t *testing.T) {
	tree := config.Tree{"/etc/p.yaml": limited("memory: {numa: 5}, loops: {affinity: 60}"), "/unreadable": ""}
	var got []string
	for _, w := range loadTree(t, tree).Warnings {
		got = append(got, short(w))
	}
	const fix = " is unknown: permission denied | see /sys/devices/system on the machine on which it is to run"
	want := []string{"1:25: whether this machine has NUMA node 5" + fix, "1:47: whether this machine has CPU 60" + fix}
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

// TestPlacementIsDumped: what is written is read as the same.
func TestPlacementIsDumped(t *testing.T) {
	cfg := load(t, limited("memory: {numa: 0, huge_pages: off}, loops: {count: 2, affinity: [1, 4-6]}"))
	for _, text := range []string{string(cfg.YAML()), string(cfg.JSON())} {
		if changes := config.Diff(cfg, load(t, text)); len(changes) > 0 {
			t.Errorf("%v, of\n%s", changes, text)
		}
	}
	if text := string(cfg.YAML()); !strings.Contains(text, `affinity: [1, "4-6"]`) || !strings.Contains(text, "numa: 0\n") {
		t.Error(text)
	}
}
