package loadbalancer

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/server"
)

// An Instance is a load balancer that serves until the end of the test. Its methods are
// called by the test's goroutine.
type Instance struct {
	*server.Server
	T   *testing.T
	Dir string          // of its configuration
	Log software.Output // the log, as text

	stop   context.CancelFunc
	served chan error
	ended  bool
}

// A Setting is the options of a load balancer beside its configuration.
type Setting struct {
	Clients int           // at most; 0 means 5,000
	Level   slog.Level    // of the log
	Drain   time.Duration // how long it may drain; 0 means 1 s
	Change  func(*server.Options)
}

// Start starts a load balancer with a configuration. Files, each a name and a text, are put
// beside the configuration.
func Start(t *testing.T, text string, files ...string) *Instance {
	t.Helper()
	return Setting{}.Start(t, text, files...)
}

// Start is the function of that name with a setting.
func (s Setting) Start(t *testing.T, text string, files ...string) *Instance {
	t.Helper()
	if s.Clients == 0 {
		s.Clients = 5000
	}
	if s.Drain == 0 {
		s.Drain = time.Second
	}
	b := &Instance{T: t, Dir: t.TempDir(), served: make(chan error, 1)}
	for i := 0; i+1 < len(files); i += 2 {
		b.Write(files[i], files[i+1])
	}
	log := slog.New(slog.NewTextHandler(&b.Log, &slog.HandlerOptions{Level: s.Level}))
	var err error
	options := server.Options{Loops: 2, MaxConnections: s.Clients, DrainTimeout: s.Drain, Log: log}
	if s.Change != nil {
		s.Change(&options)
	}
	b.Server, err = server.Open(context.Background(), b.Load(text), options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	go func() { b.served <- b.Serve(ctx) }()
	t.Cleanup(func() {
		if err := b.End(); err != nil && !errors.Is(err, server.ErrCut) {
			t.Errorf("the load balancer ended with %v", err)
		}
		if t.Failed() {
			t.Log(b.Log.String())
		}
	})
	return b
}

// Write replaces a file beside the configuration, at once.
func (b *Instance) Write(name, text string) {
	b.T.Helper()
	path := filepath.Join(b.Dir, name)
	if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
		b.T.Fatal(err)
	}
}

// Load writes and loads a configuration. Its memory is of ordinary pages unless huge_pages is written: to find out whether
// the kernel has given huge ones takes a look at all mappings of the process, which was a sixth of the tests' CPU time.
func (b *Instance) Load(text string) *config.Config {
	b.T.Helper()
	const name = "penstock.yaml"
	b.Write(name, text)
	cfg, problems := config.Load(filepath.Join(b.Dir, name), os.LookupEnv)
	if len(problems) > 0 {
		b.T.Fatalf("%v", problems)
	}
	if !strings.Contains(text, "huge_pages") {
		cfg.Limits.Memory.HugePages = config.HugePagesOff
	}
	for _, ln := range cfg.Listeners {
		patient(&ln.Timeouts.Connect, 5*time.Second)
		patient(&ln.Timeouts.Preread, 5*time.Second)
	}
	for _, u := range cfg.Upstreams {
		if h := u.HealthCheck; h != nil {
			patient(&h.Timeout, min(2*time.Second, h.Interval))
		}
	}
	return cfg
}

// patient replaces a time-out by [condition.Patience] if it is the default: on a busy machine it would change what happens.
func patient(d *time.Duration, byDefault time.Duration) {
	if *d == byDefault {
		*d = condition.Patience
	}
}

// Reload brings another configuration into force.
func (b *Instance) Reload(text string) {
	b.T.Helper()
	if err := b.Apply(context.Background(), b.Load(text)); err != nil {
		b.T.Fatal(err)
	}
}

// Stop begins its end: it drains.
func (b *Instance) Stop() { b.stop() }

// End ends it, waits for that, and returns the error of Serve; nil if it had ended before. It
// fails the test if it has to cut sessions that do not drain.
func (b *Instance) End() error {
	b.T.Helper()
	if b.ended {
		return nil
	}
	b.ended = true
	b.stop()
	select {
	case err := <-b.served:
		return err
	case <-time.After(condition.Patience):
		b.Cut()
		b.T.Error("the load balancer does not end")
		return <-b.served
	}
}

// Until waits for a condition.
func (b *Instance) Until(what string, holds func() bool) {
	b.T.Helper()
	condition.Await(b.T, what, holds)
}

// Logs waits for a line of the log that has all of these in it.
func (b *Instance) Logs(words ...string) {
	b.T.Helper()
	b.Until("the log has "+strings.Join(words, " "), func() bool {
	line:
		for line := range strings.Lines(b.Log.String()) {
			for _, w := range words {
				if !strings.Contains(line, w) {
					continue line
				}
			}
			return true
		}
		return false
	})
}
