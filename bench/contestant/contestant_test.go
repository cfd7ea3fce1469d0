package contestant_test

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/internal/testutil/must"
)

// processes is the number of processes of a kind; one if the kind is missing here.
var processes = map[string]int{"direct": 0, "nginx": workers + 1}

func TestEveryKindCarriesBytes(t *testing.T) {
	for _, k := range contestant.Kinds() {
		if k.Name == contestant.LaneName { // programs at the devices of this network: TestScripts/lane of the command has one of its own
			continue
		}
		if err := k.Available(t.Context(), &contestant.Setting{}); err != nil && k.Name == "envoy" {
			t.Log(err) // without a subtest: a skipped subtest would look as if all were skipped
			continue
		}
		t.Run(k.Name, func(t *testing.T) {
			s := setting(t)
			c := start(t, k.Name, s)
			const n = 300_000
			for range 4 {
				carry(t, s, c, n)
			}
			checkAccount(t, c, 4*n)
			checkResources(t, c)
			must.Do(t, c.Stop(forever))
			if pids, err := c.Pids(); k.Name != "direct" && !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("after Stop: %v, %v", pids, err)
			}
		})
	}
}

// checkAccount checks the account after n bytes have gone each way.
func checkAccount(t *testing.T, c *contestant.Contestant, n int64) {
	t.Helper()
	a := must.Get(c.Settle(t.Context()))(t)
	keeps := strings.HasPrefix(c.Name, "penstock") || strings.HasPrefix(c.Name, "haproxy")
	switch {
	case (a != nil) != keeps:
		t.Errorf("account %+v", a)
	case a == nil:
	case a.ClientToEndpoint != n || a.EndpointToClient != n || a.Spliced+a.Copied != 2*n || a.Active != 0:
		t.Errorf("account %+v, want %d bytes each way", a, n)
	case !strings.Contains(c.Name, "splice") && !strings.HasPrefix(c.Name, "penstock") && a.Spliced > 0, c.Name == "penstock-copy" && a.Spliced > 0, strings.Contains(c.Name, "splice") && a.Spliced == 0 && os.Getuid() == 0:
		t.Errorf("%s splices, or does not: %+v", c.Name, a)
	case (a.Summary != nil) != strings.HasPrefix(c.Name, "penstock"):
		t.Errorf("summary %+v", a.Summary)
	}
}

func checkResources(t *testing.T, c *contestant.Contestant) {
	t.Helper()
	want, isNamed := processes[c.Name]
	if !isNamed {
		want = 1
	}
	pids, err := c.Pids()
	if err != nil || len(pids) != want {
		t.Errorf("processes %v, %v, want %d", pids, err, want)
	}
	u, err := c.Usage()
	if err != nil || (u.CPU > 0) != (want > 0) || (u.Switches > 0) != (want > 0) {
		t.Errorf("usage %+v, %v", u, err)
	}
	m, err := c.Memory()
	if err != nil || (m.RssAnon > 0) != (want > 0) || (m.Descriptors > 0) != (want > 0) {
		t.Errorf("memory %+v, %v", m, err)
	}
	t.Logf("%+v %+v", u, m)
}

// TestTheRivalSplicesUnlessItsTypesAreHidden: while it splices, io.Copy holds a pipe for each
// direction.
func TestTheRivalSplicesUnlessItsTypesAreHidden(t *testing.T) {
	for name, pipes := range map[string]int{"io.Copy": 2, "io.Copy-copying": 0} {
		s := setting(t)
		c := start(t, name, s)
		conn := dial(t, s.Group, c.Address)
		exchange(t, conn)
		if n, err := c.Pipes(); err != nil || n != pipes {
			t.Errorf("%s: %d pipes, %v, want %d", name, n, err, pipes)
		}
	}
}

func exchange(t *testing.T, conn net.Conn) {
	t.Helper()
	must.Get(conn.Write([]byte("x")))(t)
	must.Get(conn.Read(make([]byte, 1)))(t)
}
