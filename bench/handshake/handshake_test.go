package handshake

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/bench/sink"
	"github.com/penstock/penstock/bench/standin"
	"github.com/penstock/penstock/internal/testutil/child"
	"github.com/penstock/penstock/internal/testutil/must"
)

// childName is the first argument of a test binary that runs as a child.
const childName = "penstock-handshake-test"

func TestMain(m *testing.M) { child.Main(m, childName, run) }

func run(args []string) error {
	ctx := context.Background()
	switch args[0] {
	case "run":
		return standin.Serve(ctx, args[2], 1000)
	case "sink":
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Printf("{\"address\":%q}\n", l.Addr())
		return sink.Serve(ctx, l.(*net.TCPListener), 1)
	}
	return RunPart(ctx, os.Stdin, os.Stdout)
}

func setup(t *testing.T) Setup {
	t.Helper()
	g := process.NewGroup()
	t.Cleanup(g.Close)
	return Setup{
		Setup: rounds.Setup{Group: g, Rounds: 2}, Program: contestant.Program{Path: "/proc/self/exe", Name: childName, Run: []string{"run"}}, Dir: t.TempDir(),
		Sink: [2]string{"sink", "1"}, Threads: 2, Trial: 100 * time.Millisecond, Workers: 4,
	}
}

func TestMeasure(t *testing.T) {
	s := setup(t)
	var turns []string
	s.Watch = func(p rounds.Progress) { turns = append(turns, fmt.Sprint(p.Round, " ", p.Contestant)) }
	r := must.Get(Measure(t.Context(), s))(t)
	if r.Rows[1].Failed != "" {
		if os.Getenv("CI") != "" {
			t.Fatal(r.Rows[1].Failed)
		}
		t.Skip(r.Rows[1].Failed)
	}
	if got := strings.Join(turns, ", "); got != "1 penstock-tls, 1 haproxy-tls, 2 haproxy-tls, 2 penstock-tls" {
		t.Error(got)
	}
	for i, row := range r.Rows {
		m := row.Median
		if m == nil || !(m.New > 0) || !(m.NewCPU > 0) || !(m.Resumed > 0) || !(m.ResumedCPU > 0) || !(m.Plain > 0) || !(m.Message > 0) || !(m.Unsealed > 0) || !(m.Many > 0) || !(m.ManyCPU > 0) || !(m.ManyP99 > 0) || !(m.ManyOpen > 0) || !(m.ManyOpenCPU > 0) || !(m.UnsealedCPU > 0) {
			t.Fatalf("%s: %+v", row.Contestant, m)
		}
		if !(m.Share > 0.9) || !strings.HasPrefix(row.Agreed, "TLS 1.3, ") {
			t.Errorf("%s: %v of the handshakes resumed; %s", row.Contestant, m.Share, row.Agreed)
		}
		if other := i > 0; (row.Ratios.Of("new_cpu_seconds") != nil) != other {
			t.Errorf("%s: %v", row.Contestant, row.Ratios)
		}
	}
}
