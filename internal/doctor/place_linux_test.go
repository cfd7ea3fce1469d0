package doctor

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

// TestSettings: a command sets all that is needed, and one for good does not take
// back what another one did.
func TestSettings(t *testing.T) {
	one, two := setting{"fs.a", "1"}, setting{"net.b", "2 3"}
	for _, c := range []struct{ got, want []string }{
		{bare.sysctl(one), []string{"sysctl -w fs.a=1", `for good: printf '%s\n' fs.a=1 >> /etc/sysctl.d/60-penstock.conf && sysctl --system`}},
		{bare.netSysctl(one, two), []string{`sysctl -w fs.a=1 net.b="2 3"`, `for good: printf '%s\n' fs.a=1 net.b="2 3" >> /etc/sysctl.d/60-penstock.conf && sysctl --system`}},
		{container.sysctl(one), []string{"on the host: sysctl -w fs.a=1"}},
		{container.netSysctl(one, two), []string{`docker run --sysctl fs.a=1 --sysctl net.b="2 3"`}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// TestServices: what is set for a service names the unit that this process is, and nothing
// where there is no systemd.
func TestServices(t *testing.T) {
	for _, c := range []struct {
		place place
		want  []string
	}{
		{bare, []string{"systemd: X=1"}},
		{unit, []string{"systemctl edit penstock.service: X=1"}},
		{openrc, nil},
		{container, nil},
	} {
		if got := c.place.service("X=1"); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.place, got, c.want)
		}
	}
}

// TestNothingOfOtherPlaces: what mends it is for the place alone.
func TestNothingOfOtherPlaces(t *testing.T) {
	few := descriptors{Soft: known(1024), Hard: known(1024), Free: known(64), Sessions: 496, Raises: true}
	for name, c := range map[string]struct {
		place place
		not   []string
	}{
		"unit":      {unit, []string{"docker", "ulimit", "limits.d", "setcap", "pod"}},
		"no init":   {openrc, []string{"docker", "systemd", "systemctl", "pod"}},
		"container": {container, []string{"systemd", "systemctl", "limits.d", "pod"}},
		"pod":       {pod, []string{"docker", "podman", "limits.d"}},
		"podman":    {pods, []string{"docker", "systemctl", "pod's"}},
	} {
		f := few
		f.place = c.place
		p := c.place
		p.seccomp, p.bound = known(2), setOf(sys.CAP_NET_BIND_SERVICE)
		mend := slices.Concat(f.raise(), p.allow("splice"), p.grant([]string{"NET_BIND_SERVICE"}), []string{p.letRead("/proc/x")},
			cpus{Allowed: 8, GOMAXPROCS: 8, Quota: known(200000), Period: known(100000), place: p}.judge().mend)
		for _, word := range c.not {
			for _, m := range mend {
				if strings.Contains(m, word) {
					t.Errorf("%s: %s", name, m)
				}
			}
		}
	}
}

func TestPlaceInWords(t *testing.T) {
	for want, p := range map[string]place{
		"on a machine":                                        {},
		"on a virtual machine":                                {virtual: true},
		"in a container of Docker":                            {container: true, engine: inDocker},
		"in the systemd unit p.service":                       {unit: "p.service"},
		"in a container, on a virtual machine":                {container: true, virtual: true},
		"in a container of Kubernetes":                        {container: true, engine: inKubernetes, unit: "kubelet.service"},
		"in the systemd unit p.service, on a virtual machine": {unit: "p.service", virtual: true},
	} {
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
