package incident

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/proxy/config"
)

// setup is an incident that takes a second.
func setup(t *testing.T) Setup {
	t.Helper()
	g := process.NewGroup()
	t.Cleanup(g.Close)
	return Setup{
		Setup: rounds.Setup{Group: g, Rounds: 1}, Part: spec, Run: balance, Dir: t.TempDir(),
		Failures: []endpoint.Failure{endpoint.Silent}, Modes: Modes()[:1], Endpoints: 3, Failing: 1, Rate: 100,
		Service: time.Millisecond, Delay: 300 * time.Millisecond, Timeout: 300 * time.Millisecond, FirstByte: 100 * time.Millisecond, Within: 100 * time.Millisecond, Bytes: 100,
		Before: 200 * time.Millisecond, During: 800 * time.Millisecond, After: 300 * time.Millisecond,
	}
}

// TestMeasure: without protection, clients of an endpoint that falls silent wait until they time
// out. Clients of one that refuses are served elsewhere. Neither depends on the machine.
func TestMeasure(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.Failures, s.Modes = Failures, named(t, Off, On)
	var seen int
	s.Watch = func(rounds.Progress) { seen++ }
	r, err := Measure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if seen != 2*len(Failures) || len(r.Incidents) != len(Failures) || len(r.Standings) != 2*2 {
		t.Errorf("%d trials, %+v", seen, r.Standings)
	}
	for i := range r.Incidents {
		in := &r.Incidents[i]
		for j := range in.Modes {
			checkTrial(t, in, &in.Modes[j])
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{`"requests_per_second":100,`, `"failure":"silent"`, `"mode":"on"`, `"mean_seconds":`, `"first_kept_away_seconds":`, `"p99_back_seconds":`, `"reasons":{"timed out":`} {
		if !bytes.Contains(text, []byte(key)) {
			t.Errorf("no %s in %s", key, text)
		}
	}
}

func checkTrial(t *testing.T, in *Incident, m *Trial) {
	t.Helper()
	if n := m.Before.Requests + m.During.Requests + m.After.Requests; n != 130 {
		t.Errorf("%s, %s: %d requests", in.Failure, m.Mode, n)
	}
	if !(m.Began >= 0.2) || !(m.Ended >= 1) || len(m.Seconds) != 2 || !strings.Contains(m.File, "upstream: shop") {
		t.Errorf("%s, %s: %+v", in.Failure, m.Mode, m)
	}
	if m.Mode == Off && len(m.Events) > 0 {
		t.Errorf("%s: %+v", in.Failure, m.Events)
	}
	if m.Mode != Off {
		return
	}
	switch reasons := m.During.Reasons; in.Failure {
	case endpoint.Silent:
		if reasons["timed out"] == 0 || m.During.Max < 0.3 {
			t.Errorf("no client of the silent endpoint timed out: %+v", m.During)
		}
	case endpoint.Refuse:
		// Other endpoints accept, and are tried as the last resort; a client may have been in
		// flight.
		if m.During.Failed > m.During.Requests/15 {
			t.Errorf("clients are refused while endpoints accept: %+v", m.During)
		}
	}
}

// TestProtectionFindsOut: an endpoint that falls silent gets no more clients, by its checks or by
// its connections, and the log has the reason. The incident lasts as long as that takes.
func TestProtectionFindsOut(t *testing.T) {
	for _, m := range named(t, FirstByte, On) {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			s := setup(t)
			s.During = 6 * time.Second
			r, err := s.measure(t.Context(), endpoint.Silent, &m)
			if err != nil {
				t.Fatal(err)
			}
			if !r.First.Known() || r.First <= 0 || r.All != r.First || len(r.Events) == 0 || !strings.HasPrefix(r.Events[0].Subject, "endpoint shop/e") {
				t.Errorf("%v, %+v", r.First, r.Events)
			}
		})
	}
}

// TestBreakerOpens: if no other protection is earlier, a circuit breaker opens. The log reports
// it, and the report has its time.
func TestBreakerOpens(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.During = 6 * time.Second
	m := Mode{Name: "breaker", text: parse(firstByteText + `    health_check: off
    outlier_detection: off
    circuit_breaker: {min_volume: 5}
`)}
	r, err := s.measure(t.Context(), endpoint.Silent, &m)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Opened) == 0 || r.Opened[0].Subject != "endpoint shop/e0" || !(r.FirstOpened > 0) || r.FirstOpened != r.First {
		t.Errorf("%v, first at %v, first kept away at %v; %+v", r.Opened, r.FirstOpened, r.First, r.Events)
	}
}

// named returns the modes of these names.
func named(t *testing.T, names ...string) (all []Mode) {
	t.Helper()
	for _, name := range names {
		m, err := ModeNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, *m)
	}
	return all
}

func TestInterrupted(t *testing.T) {
	s := setup(t)
	s.Failures = []endpoint.Failure{endpoint.Silent, endpoint.Slow}
	s.During = time.Hour
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	s.Watch = func(rounds.Progress) { time.AfterFunc(300*time.Millisecond, func() { cancel(why) }) }
	r, err := Measure(ctx, s)
	if !errors.Is(err, why) || len(r.Incidents) != 1 || len(r.Incidents[0].Modes) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A file that cannot be served ends the measurement, and the error names it.
func TestABalancerThatDoesNotStart(t *testing.T) {
	s := setup(t)
	s.Modes = []Mode{{Name: "bad", text: parse("listeners: 5\n")}}
	if _, err := Measure(t.Context(), s); err == nil || !strings.Contains(err.Error(), "silent, bad: ") || !strings.Contains(err.Error(), "listeners") {
		t.Errorf("got %v", err)
	}
}

func TestModes(t *testing.T) {
	for _, m := range Modes() {
		path := t.TempDir() + "/f.yaml"
		text := m.File("127.0.0.1:0", []string{"127.0.0.1:1", "127.0.0.1:2"}, 500*time.Millisecond, 200*time.Millisecond)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, problems := config.Load(path, nil)
		if len(problems) > 0 {
			t.Fatalf("%s: %v", m.Name, problems)
		}
		up := cfg.Upstreams[0]
		if want := map[bool]string{true: "least_conn", false: "round_robin"}[m.Name == Least]; up.Balance != want || up.SlowStart > 0 {
			t.Errorf("%s: %s, slow_start %v: only protection may differ from off", m.Name, up.Balance, up.SlowStart)
		}
		if protected := up.HealthCheck != nil && up.OutlierDetection != nil; protected != (m.Name == Defaults || m.Name == FirstByte || m.Name == On) {
			t.Errorf("%s: %+v", m.Name, up)
		}
	}
	if _, err := ModeNamed("odd"); err == nil || !strings.Contains(err.Error(), "write off, least_conn, defaults, first_byte, on") {
		t.Errorf("got %v", err)
	}
	if _, err := ParseFailure("odd"); err == nil || !strings.Contains(err.Error(), "write silent, slow, refuse") {
		t.Errorf("got %v", err)
	}
}
