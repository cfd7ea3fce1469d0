package claims

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/child"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/race"
)

func TestMain(m *testing.M) { child.Main(m, childName, runPart) }

func measured(t *testing.T, id string) map[string]Figure {
	t.Helper()
	i := slices.IndexFunc(measurements, func(m measurement) bool { return m.id == id })
	if i < 0 {
		t.Fatalf("no benchmark of %s", id)
	}
	return figures(t, measurements[i].measure)
}

// figures returns the figures of a measurement, by their names.
func figures(t *testing.T, measure func(context.Context) (Result, error)) map[string]Figure {
	t.Helper()
	r, err := measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]Figure{}
	for _, f := range r {
		all[strings.TrimPrefix(f.Of+": "+f.Name, ": ")] = f
		if f.Value < 0 {
			t.Errorf("%s", f)
		}
	}
	return all
}

func value(t *testing.T, figures map[string]Figure, name string) float64 {
	t.Helper()
	f, ok := figures[name]
	if !ok {
		t.Fatalf("no figure %q in %v", name, figures)
	}
	return f.Value
}

// The kernel's actions are the same on every machine, unlike its speed.

func TestAnIovecTooLongIsAShortWrite(t *testing.T) {
	f := measured(t, "iovec-limit")
	most := float64(0x7fffffff &^ (os.Getpagesize() - 1))
	for _, name := range []string{"written, as one iovec", "as two"} {
		if n := value(t, f, name); n != most {
			t.Errorf("%s: %.0f, want %.0f", name, n, most)
		}
	}
}

func TestAGatheredWriteCopies(t *testing.T) {
	f := measured(t, "one-call")
	if n := value(t, f, "of 65,536 bytes overwritten after writev arrived so"); n != 0 {
		t.Errorf("%.0f bytes written afterwards arrived", n)
	}
	if calls, copied := value(t, f, "Penstock: calls for a message"), value(t, f, "Penstock: copied before that"); calls != 1 || copied != 80 {
		t.Errorf("Penstock makes %v calls for a message, and copies %v bytes of it", calls, copied)
	}
}

// TestGatheredWrites: a Write for each piece moves one piece in a call, gathered writes move
// many.
func TestGatheredWrites(t *testing.T) {
	f := measured(t, "gathered-writes")
	if n := value(t, f, "a Write for each: a call"); n != 1300 {
		t.Errorf("%v bytes a Write", n)
	}
	if n := value(t, f, "gathered: a call"); n < 15*1300 || n > 50*1300 {
		t.Errorf("%v bytes a gathered write", n)
	}
	for _, way := range []string{"a Write for each", "gathered"} {
		if cpu, bits := value(t, f, way+": CPU per GB"), value(t, f, way+": "); cpu <= 0 || bits <= 0 {
			t.Errorf("%s: %v s of CPU per GB, %v bit/s", way, cpu, bits)
		}
	}
}

// TestGatheredReferences: pieces sent by reference are not copied before their call. Pieces that
// gathered-writes gathers are copied.
func TestGatheredReferences(t *testing.T) {
	for id, want := range map[string]float64{"gathered-references": 0, "gathered-writes": 100} {
		if n := value(t, measured(t, id), "gathered: copied before the call"); n != want {
			t.Errorf("%s: %v %% copied, want %v", id, n, want)
		}
	}
}

// TestAnswers: each row is measured, and only Nagle's algorithm waits for a delayed
// acknowledgement.
func TestAnswers(t *testing.T) {
	measured(t, "busy-polling")
	f := measured(t, "nagle")
	if nagle := value(t, f, "Nagle's algorithm: "); nagle < 0.02 { // half of TCP_DELACK_MIN, include/net/tcp.h
		t.Errorf("with Nagle's algorithm an answer takes %v s", nagle)
	}
}

func TestMessagesThatAreMadeAreCollected(t *testing.T) {
	f := measured(t, "slice-headers")
	if n := value(t, f, "made: not filled"); n < 1 || n > 12.5 { // the possible waste of Go's size classes
		t.Errorf("%v %% of the room of made messages are not filled", n)
	}
	if made, n := value(t, f, "made: collections"), value(t, f, "headers: collections"); made < 10 || n > made/5 {
		t.Errorf("%.0f collections with messages that are made, %.0f with pooled headers", made, n)
	}
}

// TestOneConnection: each way moves bytes by at least two calls for a buffer. The larger the
// buffer, the fewer calls.
func TestOneConnection(t *testing.T) {
	pipequota.Share(t)
	f := measured(t, "one-connection")
	last := 0.0
	for _, way := range []struct {
		name   string
		buffer float64
	}{{"copy, 2,600 B buffer", 2600}, {"copy, 64 KiB buffer", 64 << 10}, {"splice, 1 MiB pipe", 1 << 20}} {
		size := value(t, f, way.name+": a call")
		if size <= last || size > way.buffer/2 {
			t.Errorf("%s: %.0f bytes a call, after %.0f of the smaller one", way.name, size, last)
		}
		last = size
		if cpu := value(t, f, way.name+": CPU per GB"); cpu <= 0 {
			t.Errorf("%s: %v s of CPU per GB", way.name, cpu)
		}
	}
}

// TestSpliceWithTheFlagLosesNothing: the bytes of the timed loads arrive.
func TestSpliceWithTheFlagLosesNothing(t *testing.T) {
	pipequota.Share(t)
	if n := value(t, measured(t, "splice-move"), "of 65,536 bytes arrived with MOVE"); n != 65536 {
		t.Errorf("%.0f bytes arrived", n)
	}
}

// TestAStoppedTimerTakesTheOtherHalf: the allocator puts two objects of 8 bytes into one block. It
// does not do so after its caches were emptied in between.
func TestAStoppedTimerTakesTheOtherHalf(t *testing.T) {
	if race.Enabled {
		t.Skip("with the race detector sync.Pool drops items at random, and each object is allocated separately")
	}
	if n := value(t, measured(t, "stop-timer"), "no pool: allocated"); n != 160e3 {
		t.Errorf("10,000 objects of 8 bytes take %.0f bytes with a timer that stops for each", n)
	}
}

func TestAnIdleSessionIsMoreThanTheClaim(t *testing.T) {
	f := figures(t, func(ctx context.Context) (Result, error) { return measureIdle(ctx, 2000) })
	if s := value(t, f, "sessions on a loop: memory of each"); s < 200 || s > 600 {
		t.Errorf("a session on a loop takes %.0f bytes", s)
	}
	if s := value(t, f, "two goroutines with 32 KiB each: memory of each"); s < 64<<10 {
		t.Errorf("two goroutines with buffers take %.0f bytes", s)
	}
}

// TestServersEcho: each server serves some connections, and its system calls are counted.
func TestServersEcho(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil && os.Getenv("CI") == "" {
		t.Skip("without strace no system calls are counted")
	}
	for most := 50 * time.Millisecond; ; most *= 4 { // on a busy machine a server may serve nobody in so short a time
		f := figures(t, func(ctx context.Context) (Result, error) { return measureServers(ctx, 30, 1, most) })
		bad := ""
		for _, s := range echoServers {
			if rate, calls := value(t, f, s.name+": requests"), value(t, f, s.name+": in a request"); rate <= 0 || calls < 1 {
				bad += fmt.Sprintf("%s: %v requests a second, %v calls for each\n", s.name, rate, calls)
			}
		}
		if bad == "" {
			return
		}
		if most > condition.Patience {
			t.Fatalf("in %v:\n%s", most, bad)
		}
	}
}

// TestMeasuringStopsWithItsContext: the error is the cause.
func TestMeasuringStopsWithItsContext(t *testing.T) {
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	for _, m := range measurements {
		if m.id == "iovec-limit" {
			continue // two calls
		}
		if _, err := m.measure(ctx); !errors.Is(err, enough) {
			t.Errorf("%s: %v", m.id, err)
		}
	}
}

// A measurement is a row of docs/claims.md that is measured here, by the name of its section. It ends early with the cause of its
// context.
type measurement struct {
	id      string
	measure func(context.Context) (Result, error)
}

var measurements = []measurement{
	{"stop-timer", measureStopTimer},
	{"one-connection", measureConnection},
	{"one-flow", measureFlow},
	{"gathered-writes", measureWrites},
	{"gathered-references", measureReferences},
	{"ten-thousand-connections", measureConnections},
	{"slice-headers", measureHeaders},
	{"million-connections", measureMillion},
	{"one-call", measureGathered},
	{"iovec-limit", measureLimit},
	{"splice-move", measureMove},
	{"busy-polling", measureBusyPoll},
	{"nagle", measureNagle},
}

// BenchmarkClaim measures a row in each of its benchmarks. An iteration is a whole measurement, some seconds usually,
// in which the contestants take turns: -benchtime 1x is one. The figures of the last turn are its metrics, and its row.
func BenchmarkClaim(b *testing.B) {
	for _, m := range measurements {
		b.Run(m.id, func(b *testing.B) {
			var r Result
			for b.Loop() {
				var err error
				if r, err = m.measure(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(0, "ns/op") // of the whole measurement
			for _, f := range r {
				b.ReportMetric(f.Value, f.metric())
			}
			b.Log(r)
		})
	}
}

// metric returns the name of the figure's metric in a benchmark: it has no spaces.
func (f Figure) metric() string {
	name := strings.Trim(strings.Join([]string{f.Of, f.Name}, ": "), ": ")
	unit, _, _ := strings.Cut(string(f.Unit), ",")
	return strings.ReplaceAll(name+" "+unit, " ", "-")
}
