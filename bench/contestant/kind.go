package contestant

import (
	"context"
	"fmt"
)

// Kind is a kind of contestant. It can be started any number of times.
type Kind struct {
	Name  string // as in --peers: "haproxy-splice-2"
	About string // one line

	starter starter
}

// starter is the part in which the kinds differ.
type starter interface {
	// available returns nil if the kind can be started, or an error with the reason and the package to install.
	available(ctx context.Context, s *Setting) error
	// config returns the configuration file, or "".
	config(ctx context.Context, s *Setting) string
	// start starts a contestant of the kind name, and returns once it accepts connections.
	start(ctx context.Context, name string, s *Setting) (*Contestant, error)
}

// Kinds returns all kinds in the order of a report. The first kind is no proxy.
func Kinds() []*Kind {
	_, large := largePipe()
	return []*Kind{
		{"direct", "no proxy: the ceiling", direct{}},
		Penstock("penstock", "Penstock, which chooses how to move bytes"),
		Penstock("penstock-splice", "Penstock, splicing", "--engine", "splice"),
		Penstock("penstock-copy", "Penstock, copying", "--engine", "copy"),
		Penstock("penstock-busy-poll", "Penstock, whose loops spin for 50 µs before they sleep", "--busy-poll", "50us"),
		{RunName, "penstock run with the smallest file: a listener, an upstream, an endpoint", balancer{text: smallestFile}},
		{RealisticName, "penstock run with a realistic file: a route, an allow list, limits, timeouts, health checks, outlier detection, a circuit breaker, PROXY v2", balancer{text: realisticFile}},
		{LaneName, "penstock run with the smallest file and `lane: auto`: sessions leave user space; root only", newLaned()},
		{"relay", "a Go proxy by package relay: two goroutines for a session", rivalStarter{form: RivalRelay}},
		{"io.Copy", "a Go proxy by io.Copy, which splices", rivalStarter{form: RivalSplice}},
		{"io.Copy-copying", "the same with its connections' types hidden, so that it copies", rivalStarter{form: RivalCopy}},
		{"haproxy-1", "HAProxy, 1 thread", haproxy(1, copies)},
		{"haproxy-2", "HAProxy, 2 threads", haproxy(2, copies)},
		{"haproxy-splice-1", "HAProxy, splicing through pipes of " + large + ", 1 thread", haproxy(1, largePipes)},
		{"haproxy-splice-2", "HAProxy, splicing through pipes of " + large + ", 2 threads", haproxy(2, largePipes)},
		{"haproxy-splice-1-defaults", "HAProxy, splicing through pipes of its default size, 1 thread", haproxy(1, ownPipes)},
		{"haproxy-splice-2-defaults", "HAProxy, splicing through pipes of its default size, 2 threads", haproxy(2, ownPipes)},
		{"nginx", "nginx with its stream module, a worker for each processor; buffers of 16 KiB: 64 KiB would be faster on bulk, at four times the memory of a session", nginx("", "")},
		{"envoy", "Envoy's TCP proxy, a thread for each processor", envoy()},
	}
}

// Named returns the kind with a name.
func Named(name string) (*Kind, error) {
	for _, k := range Kinds() {
		if k.Name == name {
			return k, nil
		}
	}
	return nil, fmt.Errorf("no contestant is called %q", name)
}

// Penstock returns a new kind: `penstock proxy` with more flags.
func Penstock(name, about string, flags ...string) *Kind {
	return &Kind{name, about, penstock{flags: flags}}
}

// Available returns nil if the kind can be started. Otherwise it returns an error of one line, with the reason and
// the package to install. It may run the contestant's program several times, each for 5 s at most. Of s it uses
// only Binaries.
func (k *Kind) Available(ctx context.Context, s *Setting) error { return k.starter.available(ctx, s) }

// Config returns the configuration file that Start would write, or "" if the kind has none. Ports that Start
// chooses are 0.
func (k *Kind) Config(ctx context.Context, s *Setting) string { return k.starter.config(ctx, s) }

// Start starts the kind, and returns once it accepts connections. If the program ends instead, the error has its
// last message.
func (k *Kind) Start(ctx context.Context, s *Setting) (*Contestant, error) {
	patience := s.patience()
	if _, ok := k.starter.(laned); ok {
		patience = max(patience, laneStart)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%s did not start within %v", k.Name, patience))
	defer cancel()
	return k.starter.start(ctx, k.Name, s)
}
