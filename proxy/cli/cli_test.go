package cli

import (
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTimeoutFlag(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "0s": 0, "5s": 5 * time.Second, "1h30m": 90 * time.Minute, "250ms": time.Second / 4} {
		var got Timeout
		if err := got.UnmarshalText([]byte(text)); err != nil || got.Duration() != want {
			t.Errorf("%q is %v, %v, want %v", text, got.Duration(), err, want)
		}
	}
	for text, want := range map[string]string{"": "write 500ms", "-1s": "write 500ms", "soon": "write 500ms", "10": "write 10m, or 10s, or 10ms", "7d": "write 168h"} {
		var got Timeout
		if err := got.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string][2]string{
		"": {"write 50us, 1ms", "write 500us, 1ms"}, "-1s": {"or 0 for none", "or 0 for none"}, "50": {"write 50us", "write 50ms"},
	} {
		micros, millis := new(Micros).UnmarshalText([]byte(text)), new(Millis).UnmarshalText([]byte(text))
		if micros == nil || !strings.Contains(micros.Error(), want[0]) || millis == nil || !strings.Contains(millis.Error(), want[1]) {
			t.Errorf("%q: %v; %v; want %q", text, micros, millis, want)
		}
	}
	if Timeout(0).OrOff() >= 0 || Timeout(7).OrOff() != 7 {
		t.Error("0 is not off, or 7 is")
	}
}

func TestAffordable(t *testing.T) {
	for descriptors, want := range map[int]int{0: 1, 80: 8, 1024: 480, 20_000: 9_844, 1 << 20: 523_776} {
		for _, loops := range []int{-1, 2} {
			if got := Affordable(descriptors, loops); got != want {
				t.Errorf("%d descriptors afford %d connections on %d loops, want %d", descriptors, got, loops, want)
			}
		}
	}
	if got := Affordable(1024, 64); got != 358 {
		t.Errorf("1024 descriptors afford %d connections on 64 loops, want 358", got)
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

// TestSpanFlag: a span may be in days, and is not none.
func TestSpanFlag(t *testing.T) {
	for text, want := range map[string]time.Duration{"1s": time.Second, "1h30m": 90 * time.Minute, "7d": 168 * time.Hour} {
		var got Span
		if err := got.UnmarshalText([]byte(text)); err != nil || got.Duration() != want {
			t.Errorf("%q is %v, %v, want %v", text, got.Duration(), err, want)
		}
	}
	for _, text := range []string{"", "0", "0d", "-1s", "-1d", "1", "d", "1d1d", "99999d", "soon"} {
		if err := new(Span).UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "write 30m, 1h or 7d") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestTimesInOrder: a time has each unit once, the larger ones first.
func TestTimesInOrder(t *testing.T) {
	for text, good := range map[string]bool{"1h1h": false, "1m1h": false, "1ms1s": false, "1h1m1s1ms1us1ns": true, "1h1s": true, "0": true, "1.5h": true} {
		var got Timeout
		if err := got.UnmarshalText([]byte(text)); (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A writerCmd writes to its standard output, or fails by a connection whose peer has gone.
type writerCmd struct {
	Connection bool `name:"connection"`
}

// Run writes until that fails.
func (c *writerCmd) Run(e *Env) error {
	if c.Connection {
		return &net.OpError{Op: "write", Net: "unix", Err: os.NewSyscallError("write", syscall.EPIPE)}
	}
	for {
		if _, err := fmt.Fprintln(e.Stdout, "a line"); err != nil {
			return fmt.Errorf("lane: %w", err)
		}
	}
}

// TestReaderHasGone: a command ends without a message when the reader of its standard output has gone, as others end by SIGPIPE. A
// connection that is broken is an error.
func TestReaderHasGone(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		text string
	}{{[]string{"write"}, ExitPipe, ""}, {[]string{"--help"}, ExitPipe, ""}, {[]string{"write", "--connection"}, ExitError, "broken pipe"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		defer w.Close()
		var stderr strings.Builder
		p := Program{Name: "program", Commands: &struct {
			Write writerCmd `cmd:""`
		}{}}
		code := p.Run(&Env{Args: c.args, Stdout: w, Stderr: &stderr, Getenv: os.Getenv})
		if code != c.code || (c.text == "") != (stderr.Len() == 0) || !strings.Contains(stderr.String(), c.text) {
			t.Errorf("%q: exit code %d, %q", c.args, code, stderr.String())
		}
	}
}
