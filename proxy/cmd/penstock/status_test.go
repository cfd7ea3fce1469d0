package main

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/rollback"
)

func aStatus(now time.Time) *admin.Status {
	bytes := admin.Bytes{
		ClientToEndpoint: admin.ByEngine{Spliced: 1_000_000, Copied: 200_000}, EndpointToClient: admin.ByEngine{Spliced: 3_400_000_000},
	}
	return &admin.Status{
		PID: 7, State: admin.Serving, Generation: 3, Started: now.Add(-time.Hour), GenerationSince: now.Add(-2 * time.Minute),
		Pending: &rollback.Waiting{Generation: 3, Until: now.Add(90 * time.Second), RollbackIf: "failures>50", Increase: 4},
		Problems: []admin.Problem{
			{Severity: admin.Outage, Upstream: "shop", Text: "upstream shop has no usable endpoint: b: one\nand more"},
			{Severity: admin.Warning, Listener: "web", Text: "listener web is at its limit"},
			{Severity: admin.Warning, Text: "generation 3 waits"},
		},
		TLSSessions: admin.TLSSessions{Active: 2, Most: 9},
		Summary: admin.Summary{
			Connections: admin.Connections{Accepted: 5, Active: 496, Most: 496, Refused: 1}, Bytes: bytes, Lost: 17,
			Fallbacks: map[string]int64{"urgent": 2}, Pipes: admin.Pipes{Made: 9, Reused: 100, Leased: 3, Idle: 5},
			Arena: admin.Arena{Budget: 8 << 20, Used: 1 << 16, Pages: "plain pages", Locked: true, Nodes: []int{1, 1}, Fallback: "reserved huge pages:\nno", HeapResidues: 3},
			Loops: []admin.Loop{{LoopCounts: tally.LoopCounts{LagMaxUs: 256}}, {Index: 1, LoopCounts: tally.LoopCounts{LagMaxUs: 1893}}}, CPUs: "0-1",
		},
		Traces: &admin.Traces{
			Endpoint: "http://127.0.0.1:4317", Sample: 2.5, Sampled: 100, Open: 10, Queued: 20, Exported: 30, Unconfirmed: 5, Dropped: map[string]int64{"queue_full": 33, "refused": 2},
			LastError: "connection refused", LastErrorAt: now.Add(-time.Minute),
		},
		DeniedByHand: &admin.Denials{Count: 12, Latest: []admin.Denial{
			{Source: "127.0.0.0/24", Until: now.Add(time.Hour), By: "uid=0"}, {Source: "unix", Listener: "web", Until: now.Add(time.Hour)},
		}},
		Listeners: []admin.Listener{{
			Name: "web", State: admin.Paused, PausedAt: "connections", Pauses: map[string]int64{"connections": 2}, Bytes: bytes,
			Connections: admin.Connections{Active: 3, Most: 4},
			Addresses:   []string{"127.0.0.1:443", "127.0.0.2:443", "unix:/s"},
			Congestion:  &admin.Congestion{Configured: "bbr", Used: "cubic", Error: "refused"},
			Queues:      []admin.Queue{{Known: true, Length: 3, Most: 128}, {Known: true, Length: 129, Most: 128, Dropped: 7, DroppedKnown: true}, {}},
			Routes:      []admin.Route{{Match: "sni: [a.test]", To: map[string]float64{"shop": 95, "shop-next": 5}}, {To: map[string]float64{"shop": 100}}},
			Rewrites:    &admin.Rewrites{Sessions: 3, Bytes: 2_000_000, Calls: 4, TimeUs: 100, BytesOut: 3_000_000, Reset: map[string]int64{"trap": 1}, Passed: map[string]int64{"timeout": 2}, Modules: []admin.RewriteModule{{File: "/m.wasm", Direction: "up", Engine: "compiler", Instances: 3}}},
			Mirrors:     &admin.Mirrors{To: []string{"shadow"}, MirrorCounts: tally.MirrorCounts{Running: 2, Teed: 3_000_000, Copied: 4_000, Undelivered: 17}, Ended: map[string]int64{"complete": 7, "late": 1}},
		}},
		Upstreams: []admin.Upstream{
			{
				Name: "shop", Balance: "first", Breaker: "open", BreakerWhy: "9 of 9 connections failed", BreakerUntil: now.Add(time.Minute), Bytes: bytes,
				EjectionsWithheld: 12, UpstreamCounts: tally.UpstreamCounts{Held: 3}, Congestion: &admin.Congestion{Configured: "bbr", Used: "bbr", Refused: 3},
				Discovery: &admin.Discovery{Kind: "dns", From: "A db.test", Endpoints: 3, Confirmed: now.Add(-5 * time.Minute), Error: "SERVFAIL", Failures: 8},
				Endpoints: []admin.Endpoint{
					{Name: "a", State: admin.Up, Weight: 1, Zone: "z1", Bytes: bytes, LastFailure: &admin.Failure{Cause: "connect failed: connection refused", Time: now.Add(-3 * time.Second)}},
					{Name: "b", State: admin.Down, Why: strings.Repeat("long ", 50), Weight: 1, LastFailure: &admin.Failure{Cause: "that is over", Over: true}},
					{Name: "c", State: admin.Ejected, Why: "5 failures in a row", Until: now.Add(30 * time.Second), Backup: true, Active: 1, Max: 1, Unanswered: 3, UnansweredMs: 4213, LastFailure: &admin.Failure{Cause: "this machine cannot connect: no route", Time: now}},
				},
			},
			{Name: "other", Balance: "round_robin", Breaker: "closed", Discovery: &admin.Discovery{Kind: "file", From: "eps.yaml", Endpoints: 2, LeftOut: 1}},
		},
	}
}

// TestStatusSaysItOnce: a rollback is a problem or a note, with one time, and the cause of an endpoint that is down is not
// its last failure too.
func TestStatusSaysItOnce(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 1, 2, 10, 0, 0, 0, time.Local)
	st := &admin.Status{
		Refused:  &admin.RefusedFile{Generation: 2, At: now, By: "penstock", Automatic: true, Path: "p.yaml"},
		Problems: []admin.Problem{{Severity: admin.Warning, Since: now, Text: "generation 2 was rolled back at 10:00:00: failures rose"}},
		Upstreams: []admin.Upstream{{Name: "u", Endpoints: []admin.Endpoint{
			{Name: "a", State: admin.Down, Why: "connect: connection refused", LastFailure: &admin.Failure{Cause: "connect failed: connection refused", Time: now}},
		}}},
	}
	var text strings.Builder
	must(t, writeStatus(&text, st, now, false))
	for _, once := range []string{"rolled back", "10:00:00", "connection refused"} {
		if n := strings.Count(text.String(), once); n != 1 {
			t.Errorf("%q is there %d times:\n%s", once, n, text.String())
		}
	}
}

// TestUnansweredForATime: the longest wait is never shown as no time.
func TestUnansweredForATime(t *testing.T) {
	t.Parallel()

	for ms, want := range map[int64]string{0: "1ms", 24: "24ms", 1049: "1s", 4213: "4.2s"} {
		if got := unanswered(&admin.Endpoint{Unanswered: 2, UnansweredMs: ms}); got != ", unanswered 2 (for up to "+want+")" {
			t.Errorf("%d ms: %s", ms, got)
		}
	}
}

// TestStatusForPeople checks the text of a status, and that a long cause widens no column.
func TestStatusForPeople(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 1, 2, 10, 0, 0, 0, time.Local)
	var text strings.Builder
	st := aStatus(now)
	st.Listeners = append(st.Listeners, admin.Listener{Name: "gone", State: admin.Draining})
	st.RemovedSessions, st.RemovedUntil = map[string]int64{"kept": 1, "old": 2}, map[string]time.Time{"old": now.Add(time.Minute)}
	st.ClosedListeners = map[string]admin.Closed{"gone": {Sessions: 3, Until: now.Add(time.Minute)}}
	must(t, writeStatus(&text, st, now, false))
	want := `OUTAGE   upstream shop has no usable endpoint: b: one; and more
WARNING  listener web is at its limit
WARNING  generation 3 waits
process         7      serving               up 1h0m0s, generation 3 for 2m0s
connections                                  active 496 of 496 (limit), accepted 5, refused 1, in 1.20 MB, out 3.40 GB
      17 B not delivered: a receiver left, or its session was ended
      2 directions were copied, not spliced: urgent bytes arrived
  of them TLS                                active 2 of 9
pipes                                        in use 3, idle 5, made 9, reused 100
traces                 2.5 %                 sampled 100 of 5 clients, exported 30, open 10, queued 20
      dropped 35 (queue_full 33, refused 2), unconfirmed 5
      last failed request at 09:59:00: connection refused
memory                                       buffers: 8 MiB of plain pages, 64 KiB in use, locked, on NUMA node 1
      no huge pages: reserved huge pages:; no
      kept on the heap because the arena was full: 3 times
loops                                        2, on CPU 0-1, longest turn 1.893ms (loop 1)
listener        web    paused (connections)  active 3 of 4, accepted 0, refused 0, in 1.20 MB, out 3.40 GB; 127.0.0.1:443 (accept queue 3 of 128, overflows unknown), 127.0.0.2:443 (accept queue 129 of 128, overflowed 7), unix:/s (accept queue unknown)
      congestion control: cubic in place of bbr: refused
      has paused at its limits (connections 2)
      route 0 is split (sni: [a.test]): shop 95 %, shop-next 5 %
      mirrors to shadow: 2 running, 8 ended (complete 7, late 1); 3.00 MB teed, 4.00 kB copied, 17 B undelivered
      rewritten: 2.00 MB in 3 sessions, which is not zero-copy
      rewritten up by /m.wasm (compiler), with 3 instances in use
      modules: 4 calls of 25µs, which made 3.00 MB
      sessions reset because their bytes could not be rewritten (trap 1)
      sessions that went on unchanged because a module had failed (timeout 2)
listener        gone   draining              active 0, accepted 0, refused 0, in 0 B, out 0 B
upstream        shop   first, breaker open   active 0, waiting 0, waited 3, in 1.20 MB, out 3.40 GB
      breaker open until 10:01:00 (in 1m0s): 9 of 9 connections failed
      congestion control: bbr; for 3 connections the kernel refused it
      not ejected because of max_ejected: 12 failures
      3 endpoints from dns A db.test: the last successful answer was at 2026-01-02 09:55:00, 5m0s ago
      failed 8 times: SERVFAIL
  endpoint      a      up                    active 0, total 0, failures 0, weight 1, zone z1, in 1.20 MB, out 3.40 GB
      last failure 3s ago: connect failed: connection refused
  endpoint      b      down                  active 0, total 0, failures 0, weight 1, in 0 B, out 0 B
      ` + strings.Repeat("long ", 50) + `
  endpoint      c      ejected               active 1 of 1 (limit), total 0, failures 0, unanswered 3 (for up to 4.2s), weight 0, backup, in 0 B, out 0 B
      ejected until 10:00:30 (in 30s): 5 failures in a row
      last attempt 0s ago, not counted as a failure: this machine cannot connect: no route
upstream        other  round_robin           active 0, waiting 0, in 0 B, out 0 B
      2 endpoints from file eps.yaml (1 cannot be used)
upstream        kept   removed               1 session continues
upstream        old    removed               2 sessions continue until 10:01:00 (in 1m0s)
listener        gone   closed                3 sessions continue until 10:01:00 (in 1m0s)
denied by hand                               12 sources
      127.0.0.0/24 at all listeners until 2026-01-02 11:00:00, by uid=0
      unix at listener web until 2026-01-02 11:00:00, by -
      ... and 10 more, see penstock deny list
`
	if got := text.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestManyProblems: some have lines, outages first, and the others are counted.
func TestManyProblems(t *testing.T) {
	t.Parallel()

	lines := problemLines(make([]admin.Problem, 1000), maxProblems)
	if last := lines[len(lines)-1]; len(lines) != 41 || !strings.Contains(last, "960 more problems") {
		t.Errorf("%d lines, the last is %q", len(lines), last)
	}
}

// TestStatusIsNarrowed to a listener, an upstream, or both.
func TestStatusIsNarrowed(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		listener, upstream   string
		listeners, upstreams int
		err                  string
		code                 int
	}{
		{"", "", 1, 2, "", cli.ExitOutage},
		{"web", "", 1, 0, "", cli.ExitWarnings},
		{"", "other", 0, 1, "", cli.ExitWarnings},
		{"web", "shop", 1, 1, "", cli.ExitOutage},
		{"nobody", "", 0, 0, `there is no listener "nobody", known: web`, 0},
		{"", "nobody", 0, 0, `there is no upstream "nobody", known: shop, other`, 0},
	} {
		s := aStatus(time.Now())
		err := (&statusCmd{Listener: test.listener, Upstream: test.upstream}).narrow(s)
		switch {
		case test.err != "":
			if err == nil || err.Error() != test.err {
				t.Errorf("%+v: %v", test, err)
			}
		case verdict(s.Problems) != cli.ExitCode(test.code):
			t.Errorf("%+v: %v, of %+v", test, verdict(s.Problems), s.Problems)
		case err != nil || len(s.Listeners) != test.listeners || len(s.Upstreams) != test.upstreams:
			t.Errorf("%+v: %d listeners, %d upstreams, %v", test, len(s.Listeners), len(s.Upstreams), err)
		case test.upstream == "other" && s.Upstreams[0].Name != "other":
			t.Errorf("%+v: %s", test, s.Upstreams[0].Name)
		}
	}
}

// TestManyEndpointsAreSummedUp: the text stays short, and lists the endpoints with a problem or a change by hand.
func TestManyEndpointsAreSummedUp(t *testing.T) {
	t.Parallel()

	many := make([]admin.Endpoint, 5000)
	for i := range many {
		many[i] = admin.Endpoint{Name: fmt.Sprintf("e%d", i), State: admin.Up, Weight: 2}
	}
	many[3].State, many[3].Why = admin.Down, "connection refused"
	many[7].ByHand = []string{"weight 5 by uid=0"}
	st := &admin.Status{Upstreams: []admin.Upstream{{Name: "big", Endpoints: many}, {Name: "small", Endpoints: many[:2]}}}
	show := func(all bool) []string {
		var text strings.Builder
		must(t, writeStatus(&text, st, time.Now(), all))
		return strings.Split(text.String(), "\n")
	}
	short := strings.Join(show(false), "\n")
	for _, want := range []string{"  endpoints  5000", "down 1, up 4999; weight 10000 in all", "  endpoint   e3 ", "connection refused", "  endpoint   e7 ", "  endpoints  2 "} {
		if !strings.Contains(short, want) {
			t.Errorf("%q is not in\n%s", want, short)
		}
	}
	if n := len(show(false)); n > 20 {
		t.Errorf("%d lines", n)
	}
	if n := len(show(true)); n < 5002 {
		t.Errorf("with --all it has %d lines", n)
	}
	for i := range many {
		many[i].State = admin.Down
	}
	if text := strings.Join(show(false), "\n"); !strings.Contains(text, "... and 4990 more with a problem or a change by hand") {
		t.Error(text)
	}
}

// TestFileThatCannotBeUsed: the status says that a reload was refused, and that the next start fails, until the file
// is good again.
func TestFileThatCannotBeUsed(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "a")
	problems := func(code int) string {
		t.Helper()
		out, _ := r.tells(code, "status", r.file, "--problems", "--exit-code")
		return regexp.MustCompile(` \(since [-:0-9 ]+\)\n`).ReplaceAllString(out, "\n")
	}
	good := "no problems\n"
	if out := problems(cli.ExitOK); out != good {
		t.Errorf("at first it says %q", out)
	}
	admin := fmt.Sprintf("admin: {bind: \"unix:%s/admin.sock\"}\n", r.dir)
	fails := "the next start or reload will fail: " + r.file + " has 1 problem: penstock check " + r.file + " shows them\n"
	r.writeText(admin + "secret-listeners: 1\n")
	if out := problems(cli.ExitWarnings); out != "WARNING  "+fails {
		t.Errorf("of a file that was not read yet it says %q", out)
	}
	r.tells(cli.ExitError, "reload", r.file)
	out := problems(cli.ExitWarnings)
	if strings.Count(out, "\n") != 1 || !strings.HasSuffix(out, ", was refused, and nothing was changed; "+strings.Replace(fails, ":", ", too:", 1)) || strings.Contains(out, "secret") {
		t.Errorf("of a file that was refused it says %q", out)
	}
	r.write("b")
	if out := problems(cli.ExitWarnings); !strings.HasSuffix(out, "was refused, and nothing was changed: the file could not be used then, and can be used now: penstock reload\n") {
		t.Errorf("of a file that was mended it says %q", out)
	}
	r.write("a")
	if out := problems(cli.ExitOK); out != good {
		t.Errorf("with the file in force again it says %q", out)
	}
	r.balancer.mu.Lock()
	r.balancer.bad = errors.New("no room")
	r.balancer.mu.Unlock()
	r.write("b")
	r.tells(cli.ExitError, "reload", r.file)
	if out := problems(cli.ExitWarnings); !strings.HasSuffix(out, "was refused, and nothing was changed: no room\n") {
		t.Errorf("of another reason it says %q", out)
	}
	r.balancer.mu.Lock()
	r.balancer.bad = nil
	r.balancer.mu.Unlock()
	r.tells(cli.ExitOK, "reload", r.file)
	if out := problems(cli.ExitOK); out != good {
		t.Errorf("after a good reload it says %q", out)
	}
	if out, _ := r.tells(cli.ExitOK, "status", r.file, "--problems", "--json"); out != "[]\n" {
		t.Errorf("in JSON it says %q", out)
	}
}

// brokenFile is a source with a problem, or without.
type brokenFile struct {
	path    string // "": p.yaml
	bad     bool
	unknown []*config.Unknown
}

func (f *brokenFile) name() string { return cmp.Or(f.path, "p.yaml") }

func (f *brokenFile) load() (*config.Config, error) {
	cfg, _, err := f.known()
	return cfg, err
}

func (f *brokenFile) known() (*config.Config, []*config.Unknown, error) {
	if f.bad {
		return nil, nil, &admin.ConfigError{Path: "p.yaml", Problems: []string{"bad"}}
	}
	return new(config.Config), f.unknown, nil
}

// TestStatusWaitsForNoModule: a status has what is known of the file while one goroutine loads its modules, and what that has found afterwards.
func TestStatusWaitsForNoModule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var state fileState
		from, inForce, looks, loaded := &brokenFile{unknown: make([]*config.Unknown, 1)}, new(config.Config), 0, make(chan struct{})
		problem := func() bool {
			var s admin.Status
			state.get(from, func() error { looks++; <-loaded; return nil }, inForce, false, &s)
			synctest.Wait()
			return s.FileProblem != ""
		}
		for range 2 {
			if problem() || looks != 1 {
				t.Errorf("%d looks", looks)
			}
		}
		from.bad, from.unknown = true, nil
		close(loaded)
		synctest.Wait()
		if !problem() || looks != 1 {
			t.Errorf("the file has no problem after %d looks", looks)
		}
	})
}

// TestNamedFilesAreLookedAtAgain: a file that did not change is read again, once in a while, as long as it or a certificate that it names was
// refused, since the files that it names may have been mended or broken.
func TestNamedFilesAreLookedAtAgain(t *testing.T) {
	t.Parallel()
	var state fileState
	from, inForce := &brokenFile{}, new(config.Config)
	problem := func(refused string) bool {
		s := admin.Status{Listeners: []admin.Listener{{Certificates: []admin.Certificate{{Refused: refused}}}}}
		state.get(from, nil, inForce, false, &s)
		return s.FileProblem != ""
	}
	problem("") // read for the first time
	from.bad = true
	state.looked = time.Time{}
	if problem("") {
		t.Error("a file is read again though nothing is known to be wrong")
	}
	if !problem("no such key") {
		t.Error("a file whose certificate was refused is not read again")
	}
	from.bad = false
	if !problem("") {
		t.Error("a file is read again at once")
	}
	state.looked = time.Time{}
	if problem("") {
		t.Error("a file that was mended by another one has a problem still")
	}
}

// TestStatusOfAFileSystemThatHangs: while the file system of the configuration does not answer, a status does, and says so.
func TestStatusOfAFileSystemThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var state fileState
		from, inForce, hang := &brokenFile{path: "hangs.yaml"}, new(config.Config), make(chan bool)
		problem := func() string {
			var s admin.Status
			state.get(from, nil, inForce, false, &s)
			return s.FileProblem
		}
		if is := problem(); is != "" {
			t.Error(is)
		}
		if _, err := file.Within(from.name(), func() bool { return <-hang }); err == nil {
			t.Error("a look that hangs was not given up")
		}
		if is := problem(); !strings.Contains(is, "does not answer") {
			t.Errorf("the problem is %q", is)
		}
		close(hang)
		synctest.Wait()
		if is := problem(); is != "" {
			t.Error(is)
		}
	})
}
