package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

const congested = `listeners: [{name: a, bind: ':1', upstream: u, socket: {congestion: %A}}]
upstreams: [{name: u, endpoints: ['h:1'], socket: {congestion: %B}}]
`

func congestedBy(listener, upstream string) string {
	return strings.NewReplacer("%A", listener, "%B", upstream).Replace(congested)
}

// TestCongestion: a name that the kernel does not list is a problem that lists those there are; so is
// one that takes a privilege which the process lacks.
func TestCongestion(t *testing.T) {
	const privilege = ":PLACE: the congestion control cubic takes CAP_NET_ADMIN, which this process does not have | write one of bbr, reno, or give this process CAP_NET_ADMIN"
	for _, c := range []struct {
		listener, upstream string
		root               bool
		want               []string
	}{
		{"bbr", "reno", false, nil},
		{"''", "''", false, nil},
		{"cubic", "cubic", true, nil},
		{"cubic", "bbr", false, []string{"1" + strings.Replace(privilege, "PLACE", "69", 1)}},
		{"bbr", "cubic", false, []string{"2" + strings.Replace(privilege, "PLACE", "64", 1)}},
		{"bbr2", "vegas", true, []string{
			"1:69: this kernel lists no congestion control bbr2 | write one of bbr, cubic, reno, or load the module tcp_bbr2",
			"2:64: this kernel lists no congestion control vegas | write one of bbr, cubic, reno, or load the module tcp_vegas",
		}},
		{"'a b'", "sixteen_letters_", true, []string{
			`1:69: "a b" is not the name of a congestion control | write a name of at most 15 letters, digits, _ or -, such as bbr`,
			`2:64: "sixteen_letters_" is not the name of a congestion control | write a name of at most 15 letters, digits, _ or -, such as bbr`,
		}},
	} {
		tree := config.Tree{"/etc/p.yaml": congestedBy(c.listener, c.upstream)}
		if c.root {
			tree["/root"] = ""
		}
		_, problems := config.LoadTree(tree, "/etc/p.yaml", nil)
		var got []string
		for _, p := range problems {
			got = append(got, short(p))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s, %s:\n got %s\nwant %s", c.listener, c.upstream, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

// TestCongestionUnknown: a kernel that cannot be asked is no reason to refuse a name, and is said.
func TestCongestionUnknown(t *testing.T) {
	const fix = " | see /proc/sys/net/ipv4/tcp_available_congestion_control on the machine on which it is to run: sockets that cannot have it have that of the system"
	for file, c := range map[string]struct{ name, why string }{"/unreadable": {"vegas", "open /proc/c: permission denied"}, "/full": {"cubic", "too many open files"}} {
		cfg := loadTree(t, config.Tree{"/etc/p.yaml": congestedBy(c.name, "''"), file: ""})
		if len(cfg.Warnings) != 1 || short(cfg.Warnings[0]) != "1:69: whether this kernel has the congestion control "+c.name+" is unknown: "+c.why+fix {
			t.Errorf("%s: %v", file, cfg.Warnings)
		}
	}
}
