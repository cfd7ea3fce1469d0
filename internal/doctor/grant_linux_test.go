package doctor

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

func setOf(bits ...int) capabilities {
	c := capabilities{known: true}
	for _, b := range bits {
		c.set |= 1 << b
	}
	return c
}

// TestGrant: setcap is named only where the program starts and has the capability
// afterwards.
func TestGrant(t *testing.T) {
	all := setOf(sys.CAP_NET_BIND_SERVICE, sys.CAP_SYS_RESOURCE, sys.CAP_BPF, sys.CAP_NET_ADMIN)
	names := []string{"NET_BIND_SERVICE", "SYS_RESOURCE"}
	for name, c := range map[string]struct {
		place place
		mend  string // without the program
	}{
		"bare": {
			place{user: 1000, bound: all},
			"setcap cap_net_bind_service,cap_sys_resource+ep PROGRAM\nsystemd: AmbientCapabilities=CAP_NET_BIND_SERVICE CAP_SYS_RESOURCE",
		},
		"beyond the bounding set": {
			place{user: 1000, bound: setOf(sys.CAP_NET_BIND_SERVICE)},
			"systemd: AmbientCapabilities=CAP_NET_BIND_SERVICE CAP_SYS_RESOURCE, and nothing that takes CAP_SYS_RESOURCE out of CapabilityBoundingSet=, " +
				"as was done here: after setcap the program would not even start",
		},
		"no_new_privs": {
			place{user: 1000, bound: all, noNewPrivs: true},
			"systemd: AmbientCapabilities=CAP_NET_BIND_SERVICE CAP_SYS_RESOURCE (setcap does nothing under no_new_privs, and stops a program whose bounding set lacks one)",
		},
		"bounding set unknown": {
			place{user: 1000},
			"systemd: AmbientCapabilities=CAP_NET_BIND_SERVICE CAP_SYS_RESOURCE (setcap does nothing under no_new_privs, and stops a program whose bounding set lacks one)",
		},
		"nested": {place{nested: true, bound: all, container: true}, "outside of a user namespace: CAP_NET_BIND_SERVICE CAP_SYS_RESOURCE"},
		"root of a container": {
			place{container: true, bound: setOf(sys.CAP_NET_BIND_SERVICE)},
			"docker run --cap-add NET_BIND_SERVICE --cap-add SYS_RESOURCE",
		},
		"user of a container": {
			place{container: true, user: 1000, bound: setOf(sys.CAP_NET_BIND_SERVICE)},
			"docker run --user 0 --cap-add NET_BIND_SERVICE --cap-add SYS_RESOURCE\n" +
				"in the image: setcap cap_net_bind_service,cap_sys_resource+ep PROGRAM, and always docker run --cap-add NET_BIND_SERVICE --cap-add SYS_RESOURCE",
		},
		"user of a container, no_new_privs": {
			place{container: true, user: 1000, noNewPrivs: true},
			"docker run --user 0 --cap-add NET_BIND_SERVICE --cap-add SYS_RESOURCE",
		},
	} {
		got := strings.ReplaceAll(strings.Join(c.place.grant(names), "\n"), program(), "PROGRAM")
		if got != c.mend {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.mend)
		}
	}
}

// TestGrantsAreOne: one command, since each replaces what was given before, gives all
// that is needed, and what an ordinary user has.
func TestGrantsAreOne(t *testing.T) {
	p := &process{place: place{
		user: 1000, effective: setOf(sys.CAP_NET_BIND_SERVICE),
		bound: setOf(sys.CAP_NET_BIND_SERVICE, sys.CAP_SYS_RESOURCE, sys.CAP_BPF, sys.CAP_NET_ADMIN),
	}}
	checks := []Check{
		{Name: "pipe-quota", Mend: []string{"sysctl"}, needs: []string{"SYS_RESOURCE"}},
		{Name: "bpf", needs: []string{"BPF", "NET_ADMIN"}},
		{Name: "capabilities", Mend: []string{}},
	}
	p.grantAll(checks)
	all := []string{"NET_BIND_SERVICE", "SYS_RESOURCE", "NET_ADMIN", "BPF"}
	for i, want := range [][]string{{"sysctl", "CAP_SYS_RESOURCE: see bpf"}, p.grant(all), {}} {
		if got := checks[i].Mend; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", checks[i].Name, got, want)
		}
	}
}

func TestCapabilitiesOfStatus(t *testing.T) {
	if c := parseCapabilities("000001fffeffffff"); c.set.Has(sys.CAP_SYS_RESOURCE) || !c.set.Has(sys.CAP_BPF) || !c.known {
		t.Errorf("%+v", c)
	}
	if c := parseCapabilities(""); c.known || len(c.without([]string{"BPF"})) > 0 {
		t.Errorf("%+v, although nothing was read", c)
	}
}
