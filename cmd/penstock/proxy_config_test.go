package main

import (
	"bytes"
	"io"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/penstock/penstock/proxy"
)

// TestBulkFlags: what the flags say reaches the server, 0 as off.
func TestBulkFlags(t *testing.T) {
	c := proxyCmd{
		Listen: []string{":0"}, To: []string{"10.0.0.5:80"}, SourceAddress: "10.0.0.7",
		engineFlags: engineFlags{
			Engine: "auto", TailDelay: millis(2 * time.Millisecond), Gather: micros(300 * time.Microsecond), MaxPipeSize: 256 << 10,
		},
	}
	cfg, err := c.config()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.TailDelay != 2*time.Millisecond || cfg.Gather != 300*time.Microsecond || cfg.MaxPipeSize != 256<<10 || cfg.Source != netip.MustParseAddr("10.0.0.7") {
		t.Errorf("%+v", cfg)
	}
	c.TailDelay, c.Gather, c.SourceAddress = 0, 0, ""
	if cfg, err = c.config(); err != nil {
		t.Fatal(err)
	}
	if cfg.TailDelay >= 0 || cfg.Gather >= 0 || cfg.Source.IsValid() {
		t.Errorf("off: %+v", cfg)
	}
}

// TestLoopFlags: so does what they say of loops.
func TestLoopFlags(t *testing.T) {
	for args, want := range map[string]proxy.Config{
		"--loops 3": {Loops: 3},
		"--loops 2 --busy-poll 50us --no-sched-batch": {Loops: 2, BusyPoll: 50 * time.Microsecond, KeepPolicy: true},
		"--loops 0 --sched-batch":                     {Loops: -1},
	} {
		var c cli
		k, err := kong.New(&c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Parse(strings.Fields("proxy --listen :0 --to 10.0.0.5:80 " + args)); err != nil {
			t.Fatal(err)
		}
		cfg, err := c.Proxy.config()
		if err != nil {
			t.Fatal(err)
		}
		if got := (proxy.Config{Loops: cfg.Loops, BusyPoll: cfg.BusyPoll, KeepPolicy: cfg.KeepPolicy}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", args, got, want)
		}
	}
}

// TestAdviceIsTaken: what is advised to write instead of a bare number passes the checks
// that come next.
func TestAdviceIsTaken(t *testing.T) {
	for _, flag := range []string{"--busy-poll", "--tail-delay", "--gather"} {
		for _, number := range []string{"1", "50", "400", "1000"} {
			args := []string{"proxy", "--listen", "unix:/dev/null/s", "--to", "127.0.0.1:1", flag}
			code, _, text := call(append(args, number)...)
			_, advice, _ := strings.Cut(text, "write ")
			advice, _, _ = strings.Cut(advice, " ")
			if code != exitUsage || !strings.HasPrefix(advice, number) {
				t.Errorf("%s %s: exit code %d, %q", flag, number, code, text)
			}
			// It gets as far as to fail to listen.
			if code, _, text := call(append(args, advice)...); code != exitError {
				t.Errorf("%s %s, as advised: exit code %d, %q", flag, advice, code, text)
			}
		}
	}
}

// A lookout looks when something is written, and then has the program end.
type lookout struct {
	look  func()
	stops chan os.Signal
}

func (l *lookout) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("msg=listening")) {
		l.look()
		l.stops <- syscall.SIGTERM
	}
	return len(p), nil
}

// TestSpareProcs: there is one P more than loops while the proxy runs, unless the
// environment says how many or there are enough; afterwards it is as it was.
func TestSpareProcs(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	for _, c := range []struct {
		loops, env string
		want       int
	}{
		{"3", "", 4}, {"5", "", 6}, {"2", "", 3}, {"1", "", 3}, {"0", "", 3}, {"3", "3", 3}, {"5", "3", 3},
	} {
		during := 0
		out := &lookout{look: func() { during = runtime.GOMAXPROCS(0) }, stops: make(chan os.Signal, 1)}
		code := run(&env{
			args:   []string{"proxy", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", "--loops", c.loops},
			stdout: io.Discard, stderr: out, stops: out.stops,
			getenv: func(name string) string { return map[string]string{"GOMAXPROCS": c.env}[name] },
		})
		if code != exitOK || during != c.want {
			t.Errorf("--loops %s, GOMAXPROCS=%s: exit code %d, %d Ps, want %d", c.loops, c.env, code, during, c.want)
		}
		if n := runtime.GOMAXPROCS(0); n != 3 {
			t.Fatalf("--loops %s, GOMAXPROCS=%s: %d Ps afterwards, want 3", c.loops, c.env, n)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]size{"65536": 65536, "64KiB": 64 << 10, "1MiB": 1 << 20, "0": 0, "2047MiB": 2047 << 20} {
		var got size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s is %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "1M", "1.5MiB", "-1", "2048MiB", "2147483648", "1 MiB", "1KiBKiB"} {
		var got size
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %d, want an error", text, got)
		}
	}
}
