package main

import (
	"bytes"
	"errors"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy"
)

// call runs the program with args, and without signals.
func call(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(&env{args: args, stdout: &out, stderr: &err, getenv: func(string) string { return "" }})
	return code, out.String(), err.String()
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		args string
		want int
	}{
		{"", exitOK},
		{"--help", exitOK},
		{"proxy --help", exitOK},
		{"version", exitOK},
		{"help", exitOK},
		{"help proxy", exitOK},
		{"--version", exitOK},
		{"-v", exitOK},
		{"version now", exitUsage},
		{"demo --seconds 1e300", exitUsage},
		{"demo --listen foo", exitUsage},
		{"proxy", exitUsage},
		{"proxy --listen unix:/dev/null/s --to 127.0.0.1:1", exitError},
	} {
		code, stdout, stderr := call(strings.Fields(c.args)...)
		if code != c.want {
			t.Errorf("penstock %s: exit code %d, want %d", c.args, code, c.want)
		}
		if code == exitOK && (stdout == "" || stderr != "") {
			t.Errorf("penstock %s: prints %q, complains %q", c.args, stdout, stderr)
		}
		if code != exitOK && (stdout != "" || strings.Count(stderr, "\n") != 1) {
			t.Errorf("penstock %s: prints %q, complains %q, want one line", c.args, stdout, stderr)
		}
	}
}

func TestTimeoutFlag(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "0s": 0, "5s": 5 * time.Second, "1h30m": 90 * time.Minute, "250ms": time.Second / 4} {
		var got timeout
		if err := got.UnmarshalText([]byte(text)); err != nil || got.duration() != want {
			t.Errorf("%q is %v, %v, want %v", text, got.duration(), err, want)
		}
	}
	for text, want := range map[string]string{"": "write 500ms", "-1s": "write 500ms", "soon": "write 500ms", "10": "write 10s"} {
		var got timeout
		if err := got.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string][2]string{
		"": {"write 50us, 1ms", "write 500us, 1ms"}, "-1s": {"or 0 for none", "or 0 for none"}, "50": {"write 50us", "write 50ms"},
	} {
		micros, millis := new(micros).UnmarshalText([]byte(text)), new(millis).UnmarshalText([]byte(text))
		if micros == nil || !strings.Contains(micros.Error(), want[0]) || millis == nil || !strings.Contains(millis.Error(), want[1]) {
			t.Errorf("%q: %v; %v; want %q", text, micros, millis, want)
		}
	}
	if timeout(0).orOff() >= 0 || timeout(7).orOff() != 7 {
		t.Error("0 is not off, or 7 is")
	}
}

func TestAffordable(t *testing.T) {
	for descriptors, want := range map[int]int{0: 1, 40: 4, 1024: 496, 20_000: 9_900, 1 << 20: 523_776} {
		for _, loops := range []int{-1, 2} {
			if got := affordable(descriptors, loops); got != want {
				t.Errorf("%d descriptors afford %d connections on %d loops, want %d", descriptors, got, loops, want)
			}
		}
	}
	if got := affordable(1024, 64); got != 374 {
		t.Errorf("1024 descriptors afford %d connections on 64 loops, want 374", got)
	}
}

func TestVersionOf(t *testing.T) {
	build := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	for want, info := range map[string]*debug.BuildInfo{
		"(unknown)": nil,
		"(devel)":   build(""),
		"v1.2.3":    build("v1.2.3"),
		"v0.0.0-20260102030405-0123456789ab+dirty": build("v0.0.0-20260102030405-0123456789ab+dirty",
			debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}),
		"(devel) 01d57a": build("(devel)", debug.BuildSetting{Key: "vcs", Value: "git"}, debug.BuildSetting{Key: "vcs.revision", Value: "01d57a"}),
	} {
		if got := versionOf(info); got != want {
			t.Errorf("version is %q, want %q", got, want)
		}
	}
}

func TestSummaryForPeople(t *testing.T) {
	s := proxy.Summary{
		Connections: proxy.Connections{Accepted: 1, Active: 2, Refused: 3},
		Bytes: proxy.Bytes{
			ClientToEndpoint: proxy.Moved{Spliced: 4, Copied: 5},
			EndpointToClient: proxy.Moved{Spliced: 6, Copied: 7},
		},
		Lost:      8,
		Fallbacks: map[string]int64{"wrapped": 9, "urgent": 10},
		Pipes:     proxy.Pipes{Made: 11, Reused: 12, Leased: 13, Idle: 14},
		Pauses:    proxy.Pauses{GC: 15, GCMaxUs: 16},
		Loops: []proxy.Loop{
			{Active: 17, HandedOver: 18, LagP99Us: 19, LagMaxUs: 21, TimerLateP99Us: 60, TimerLateMaxUs: 61, Blocked: 30, Gathers: 31, BusyPollHits: 32, Batches: 41, BatchRefused: 51},
			{Active: 22, HandedOver: 1, LagP99Us: 20, TimerLateMaxUs: 62, Blocked: 1, Gathers: 2, BusyPollHits: 3, Batches: 1, BatchRefused: 1},
		},
		AcceptPauses: 23,
		Engine:       proxy.Engine{Promotions: 24, Demotions: 25, PipeGrowths: 26, MarksRaised: 27, MarksLowered: 28, TurnsCut: 29},
		Arena:        &proxy.Arena{Size: 40, Used: 41, Peak: 42, Residues: 43, Refused: 44},
	}
	const want = `connections         accepted 1, active 2, refused 3
client to endpoint  spliced 4 bytes, copied 5 bytes
endpoint to client  spliced 6 bytes, copied 7 bytes
lost                8 bytes
fallbacks           urgent 10, wrapped 9
pipes               made 11, reused 12, leased 13, idle 14
pauses              15 by the collector, the longest 16 us; 23 in accepting
engine              promotions 24, demotions 25, pipe growths 26, marks raised 27, lowered 28, turns cut 29
arena               used 41 of 40 bytes, at most 42, residues 43, refused 44
loops               2, active 17 + 22, handed over 19, blocked 31, gathers 33, busy-poll hits 35, batches 42 (refused 52), lag 20 us (99 %), 21 us (longest), timers late 60 us (99 %), 62 us (longest)
`
	var got bytes.Buffer
	if err := writeSummary(&got, "text", s); err != nil || got.String() != want {
		t.Errorf("summary is\n%s%v, want\n%s", got.String(), err, want)
	}
}

func TestWriteErrorsAreReported(t *testing.T) {
	for _, form := range []string{"text", "json"} {
		if err := writeSummary(broken{}, form, proxy.Summary{}); !errors.Is(err, errBroken) {
			t.Errorf("as %s: %v", form, err)
		}
	}
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }
