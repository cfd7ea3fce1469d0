package doctor

import (
	"slices"
	"testing"
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
