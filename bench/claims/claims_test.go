package claims_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/claims"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/pipequota"
)

func TestMain(m *testing.M) {
	flag.Parse()
	leak.Main(m)
}

var update = flag.Bool("update", false, "write docs/claims.md anew from the rows and recorded.json")

const page = "../../docs/claims.md"

// recorded reads the last runs that were kept. To record others:
//
//	penstock-bench claims --json bench/claims/recorded.json
//	penstock-bench switches --connections 10000 --json switches.json
//	penstock-bench reload --json reload.json
//	penstock-bench incident --failures silent,slow --modes off,on --json incident.json
//	go test ./bench/claims -update -switches "$PWD/switches.json" -reload "$PWD/reload.json" -incident "$PWD/incident.json"
//
// If the flag of a command is missing, its recorded rows stay.
func recorded(t *testing.T) *claims.Record {
	t.Helper()
	rec := readRecord(t, "recorded.json")
	rec.Results = append(rec.Results, readRecord(t, apart).Results...)
	return rec
}

func readRecord(t *testing.T, name string) *claims.Record {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rec, err := claims.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// TestPage: the page has the content of the rows and the record.
func TestPage(t *testing.T) {
	recordApart(t)
	want := claims.Markdown(claims.All(), recorded(t))
	if *update {
		if err := os.WriteFile(filepath.FromSlash(page), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(filepath.FromSlash(page))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) == want {
		return
	}
	w, g := strings.Split(want, "\n"), strings.Split(string(got), "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			t.Fatalf("docs/claims.md differs from the rows (go test ./bench/claims -update writes it); line %d is\n%s\nand not\n%s", i+1, g[i], w[i])
		}
	}
	t.Fatalf("docs/claims.md has %d lines, the rows make %d (go test ./bench/claims -update writes it)", len(g), len(w))
}

// TestRecordIsWhole: the record has the measured rows in their order, then those that other
// commands measure, and no other.
func TestRecordIsWhole(t *testing.T) {
	var want, got []string
	for _, c := range claims.All() {
		if c.Measured() {
			want = append(want, c.ID)
		}
	}
	want = append(want, apartIDs...)
	for _, r := range recorded(t).Results {
		got = append(got, r.ID)
		if len(r.Figures) == 0 {
			t.Errorf("%s has no figures", r.ID)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the record has %v, the rows %v", got, want)
	}
}

// TestEveryFigureHasARow: each published figure has its row.
func TestEveryFigureHasARow(t *testing.T) {
	for id, figures := range map[string][]string{
		"pipe-pool":                {"1.36 µs → 0.02 µs", "24 B → 0"},
		"pipe-pool-parallel":       {"747 ns → 4 ns", "24 B → 0"},
		"object-pool":              {"3.02 ms → 1.36 ms", "10,000"},
		"stop-timer":               {"3.02 ms → 1.36 ms"},
		"pool-across-collections":  {"993 ms → 1.03 s"},
		"pool-private":             {"3.00 ns → 2.21 ns"},
		"pool-overflow":            {"600 ns → 587 ns"},
		"pool-pause":               {"71 µs → 5.6 µs", "p95 73.1 µs → 6.7 µs"},
		"pool-expensive-new":       {"+17.7 %", "33.9 → 40.0"},
		"one-connection":           {"1.3 → 8.2 Gbit/s", "125 k → 8.3 k", "42 % → 19 %"},
		"gathered-writes":          {"1.3 → 8.2 Gbit/s", "125 k → 8.3 k", "42 % → 19 %"},
		"ten-thousand-connections": {"24,800 → 1,920", "12.7 ms → 3.1 ms", "10,000"},
		"slice-headers":            {"127 / 9 / 3", "2.1 / 1.8 / 0.4 GiB", "38 / 62 / 11 %"},
		"million-connections":      {"64 MB", "9.3 µs", "1.2 GB", "42 µs"},
		"one-call":                 {"one call instead of three"},
		"iovec-limit":              {"EINVAL"},
		"splice-move":              {"move pages"},
		"gathered-references":      {"1.3 → 8.2 Gbit/s", "125 k → 8.3 k", "42 % → 19 %"},
		"configuration":            {"95.7 %", "42 s"},
		"incident-silent":          {"842 → 127 ms", "3.2 → 0.18 %"},
		"incident-slow":            {"842 → 127 ms", "3.2 → 0.18 %"},
		"traces":                   {"99.3 %"},
		"alerts":                   {"1,843 → 217"},
		"fault-location":           {"92 %", "−68 %"},
		"unexplained-latency":      {"−73 %", "89 µs"},
		"unexplained-share":        {"37 %", "83 µs", "0.012 %"},
	} {
		found, err := claims.Find([]string{id})
		if err != nil {
			t.Error(err)
			continue
		}
		for _, f := range figures {
			if !strings.Contains(found[0].Published, f) {
				t.Errorf("%s: %q does not have %q", id, found[0].Published, f)
			}
		}
	}
}

// TestRowsAreWhole: every row has all its columns, a command that exists, and
// figures or a milestone.
func TestRowsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range claims.All() {
		if seen[c.ID] || !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(c.ID) {
			t.Errorf("%q is no name, or the name of two rows", c.ID)
		}
		seen[c.ID] = true
		for _, s := range []string{c.Title, c.Published, c.Measures, c.Source, c.Command, c.Honest} {
			if s == "" || strings.Contains(s, "\n") {
				t.Errorf("%s: a column is empty, or has two lines: %q", c.ID, s)
			}
		}
		if !c.Measured() && c.Refused == "" && c.Command == "none yet" {
			t.Errorf("%s has no measurement and no refusal", c.ID)
		}
		if c.Measured() && !strings.Contains(c.Command, "penstock-bench claims "+c.ID) {
			t.Errorf("%s: the command %q does not measure it", c.ID, c.Command)
		}
	}
}

// TestBenchmarksExist: the benchmarks that commands name exist.
func TestBenchmarksExist(t *testing.T) {
	command := regexp.MustCompile(`go test \./(\w+) -run '\^\$' -bench ('[^']*'|[^ ,]+)`)
	for _, c := range claims.All() {
		for _, m := range command.FindAllStringSubmatch(c.Command, -1) {
			for name := range strings.SplitSeq(strings.Trim(m[2], "'"), "|") {
				name, _, _ = strings.Cut(name, "/")
				name = strings.TrimPrefix(strings.TrimSuffix(name, "$"), "^Benchmark")
				if !declared(t, m[1], name) {
					t.Errorf("%s: no benchmark of %s matches %q", c.ID, m[1], name)
				}
			}
		}
	}
}

func declared(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declaration := regexp.MustCompile(`func Benchmark\w*` + name + `\w*\(`)
	return slices.ContainsFunc(files, func(path string) bool {
		text, err := os.ReadFile(path)
		return err == nil && declaration.Match(text)
	})
}

func TestFind(t *testing.T) {
	if all, err := claims.Find(nil); err != nil || len(all) != len(claims.All()) {
		t.Errorf("%d claims, %v", len(all), err)
	}
	found, err := claims.Find([]string{"traces", "pipe-pool"})
	if err != nil || len(found) != 2 || found[0].ID != "traces" || found[1].ID != "pipe-pool" {
		t.Errorf("got %v, %v", found, err)
	}
	if _, err := claims.Find([]string{"perpetuum"}); err == nil || !strings.Contains(err.Error(), "write one of pipe-pool, ") {
		t.Errorf("an unknown claim: %v", err)
	}
}

// measured returns the figures of a claim that is measured now.
func measured(t *testing.T, id string) map[string]claims.Figure {
	t.Helper()
	found, err := claims.Find([]string{id})
	if err != nil {
		t.Fatal(err)
	}
	r, err := found[0].Measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	figures := map[string]claims.Figure{}
	for _, f := range r.Figures {
		figures[strings.TrimPrefix(f.Of+": "+f.Name, ": ")] = f
		if f.Value < 0 {
			t.Errorf("%s", f)
		}
	}
	return figures
}

func value(t *testing.T, figures map[string]claims.Figure, name string) float64 {
	t.Helper()
	f, ok := figures[name]
	if !ok {
		t.Fatalf("no figure %q in %v", name, figures)
	}
	return f.Value
}

// raced reports whether the race detector is on.
var raced bool

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
	for _, id := range []string{"event-ring", "busy-polling"} {
		measured(t, id)
	}
	f := measured(t, "nagle")
	if nagle := value(t, f, "Nagle's algorithm: "); nagle < 0.02 { // half of TCP_DELACK_MIN, include/net/tcp.h
		t.Errorf("with Nagle's algorithm an answer takes %v s", nagle)
	}
}

func TestLeasedPipesAllocateNothing(t *testing.T) {
	if raced {
		t.Skip("with the race detector sync.Pool drops items at random, and Go's design leaves their pipes to the collector: descriptors run out")
	}
	pipequota.Spend(t) // a collection closes pipes that are made as Go does
	f := measured(t, "pipe-pool")
	if n := value(t, f, "leased: allocated"); n > 0.5 { // the runtime sometimes allocates, too
		t.Errorf("%v bytes per lease", n)
	}
	if n := value(t, f, "made like Go: allocated"); n < 24 {
		t.Errorf("%v bytes per pipe that is made as Go does", n)
	}
}

func TestCollectionsDoNotEmptyOurPool(t *testing.T) {
	f := measured(t, "pool-across-collections")
	for name, want := range map[string]float64{
		"of 1,000 idle during three collections are left: sync.Pool": 0,
		"of 1,000 idle during three collections are left: Penstock":  1000,
		"Penstock closes in the end":                                 1000,
	} {
		if n := value(t, f, name); n != want {
			t.Errorf("%s: %.0f, want %.0f", name, n, want)
		}
	}
}

func TestMessagesThatAreMadeAreCollected(t *testing.T) {
	f := measured(t, "slice-headers")
	if n := value(t, f, "made: not filled"); n < 1 || n > 12.5 { // the possible waste of Go's size classes
		t.Errorf("%v %% of the room of made messages are not filled", n)
	}
	for _, way := range []string{"headers", "headers, arena"} {
		if made, n := value(t, f, "made: collections"), value(t, f, way+": collections"); made < 10 || n > made/5 {
			t.Errorf("%.0f collections with messages that are made, %.0f with %s", made, n, way)
		}
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

// TestAStoppedTimerTakesTheOtherHalf: the allocator puts two small objects into one block. It
// does not do so after its caches were emptied in between.
func TestAStoppedTimerTakesTheOtherHalf(t *testing.T) {
	if raced {
		t.Skip("with the race detector sync.Pool drops items at random, and each object is allocated separately")
	}
	whole, stopped := value(t, measured(t, "object-pool"), "no pool: allocated"), value(t, measured(t, "stop-timer"), "no pool: allocated")
	if whole > 90e3 || stopped != 160e3 {
		t.Errorf("10,000 objects of 8 bytes take %.0f bytes, with a timer that stops for each %.0f", whole, stopped)
	}
}

func TestAnIdleSessionIsMoreThanTheClaim(t *testing.T) {
	f := measured(t, "million-connections")
	const stack = 2 << 10 // the minimum stack of a goroutine
	if g := value(t, f, "a goroutine that waits"); g < stack || g > 4*stack {
		t.Errorf("a goroutine takes %.0f bytes", g)
	}
	if s := value(t, f, "an idle session on goroutines"); s < stack || s > 16*stack { // the goroutine in Join, without a buffer of 64 KiB
		t.Errorf("a session takes %.0f bytes", s)
	}
}

func TestMeasuringStopsWithItsContext(t *testing.T) {
	enough := errors.New("enough")
	for _, patience := range []time.Duration{0, 50 * time.Millisecond} {
		found, err := claims.Find([]string{"traces", "million-connections", "pool-private"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), patience, enough)
		rec, err := claims.Run(ctx, found, "", func(*claims.Claim) {})
		cancel()
		if !errors.Is(err, enough) || len(rec.Results) > 1 {
			t.Errorf("after %v: %d results, %v", patience, len(rec.Results), err)
		}
	}
}

func TestRecordSurvivesJSON(t *testing.T) {
	rec := recorded(t)
	var b strings.Builder
	if err := rec.Write(&b); err != nil {
		t.Fatal(err)
	}
	again, err := claims.Read(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if claims.Markdown(claims.All(), again) != claims.Markdown(claims.All(), rec) {
		t.Error("a record differs after writing and reading")
	}
	if _, err := claims.Read(strings.NewReader(`{"results": 1}`)); err == nil {
		t.Error("another file was read as a record")
	}
}
