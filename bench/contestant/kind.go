package contestant

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/penstock/penstock/bench/process"
)

// Kind is a kind of contestant. It can be started any number of times.
type Kind struct {
	Name  string // as in --peers: "haproxy-splice-2"
	About string // one line

	starter
}

// starter is the part in which the kinds differ.
type starter interface {
	// Available returns nil if the kind can be started. Otherwise it returns an error of one line, with the reason
	// and the package to install. It may run the contestant's program several times, each for 5 s at most. Of s it
	// uses only Binaries.
	Available(ctx context.Context, s *Setting) error
	// Config returns the configuration file that Start would write, or "" if the kind has none. Ports that Start
	// chooses are 0.
	Config(ctx context.Context, s *Setting) string
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

// patience is the default of Setting.Patience.
const patience = 10 * time.Second

// PartRival is the name of the part (see Program) that runs package rival. Its arguments are the upstream address,
// and RivalSplice, RivalCopy or RivalRelay. Once it listens, it prints {"address":"127.0.0.1:41235"} on standard
// output.
const (
	PartRival   = "rival"
	RivalSplice = "splice"
	RivalCopy   = "copy"
	RivalRelay  = "relay"
)

// Program says how to run the program that contains the parts of a benchmark and the proxy.
type Program struct {
	Path string // path of the executable with the parts
	Name string // its first argument
	// Part are the arguments that come before the name and the arguments of a part.
	Part []string
	// PenstockPath is the path of the penstock program. If it is "", Path contains that program.
	PenstockPath string
	// Proxy and Run are the arguments of penstock that come before the flags of the proxy and of the load
	// balancer.
	Proxy, Run []string
	// Env is the environment of the children; nil means the environment of this process.
	Env []string
}

// Penstock returns how to run the penstock program. command is Proxy or Run, and args follow it.
func (p *Program) Penstock(name string, command []string, args ...string) process.Spec {
	spec := p.Spec(name, command, args...)
	if p.PenstockPath != "" {
		spec.Path, spec.Args[0] = p.PenstockPath, "penstock"
	}
	return spec
}

// Spec returns how to run the program with the parts. command is Part, and args follow it.
func (p *Program) Spec(name string, command []string, args ...string) process.Spec {
	all := append([]string{p.Name}, command...)
	return process.Spec{Name: name, Path: p.Path, Args: append(all, args...), Env: p.Env}
}

// Setting says where and how a contestant is started.
type Setting struct {
	Group    *process.Group // starts the contestant; may be isolated
	Program  Program        // the program for Penstock and the rival
	Upstream string         // IPv4 address and port to forward to
	// Endpoints are the addresses to which the kinds of Balancing forward, instead of to Upstream. For other kinds
	// it must be empty.
	Endpoints []string
	// Listen is the IPv4 address and port to listen at. If it is "" or the port is 0, the kernel chooses a port.
	Listen string
	// Dir is the directory for configurations and unix sockets. Each start makes a new directory in it. The caller
	// removes Dir.
	Dir string
	// Certificate is a PEM file with a certificate and its key, with which the kinds of Terminating terminate TLS.
	// For other kinds it must be empty.
	Certificate string
	// Binaries has the paths of the executables "haproxy", "nginx" and "envoy". Other executables are searched for
	// in PATH, and where servers are installed.
	Binaries map[string]string
	// Threads is the number of nginx's workers and of Envoy's threads; 0 means one for each processor. Other
	// contestants have the number in their name, or choose it.
	Threads int
	// Patience is how long a contestant may take to accept connections, and to forget ended connections; 0 means
	// 10 s.
	Patience time.Duration
}

func (s *Setting) endpoints() []string {
	if len(s.Endpoints) > 0 {
		return s.Endpoints
	}
	return []string{s.Upstream}
}

func (s *Setting) listen() string          { return cmp.Or(s.Listen, "127.0.0.1:0") }
func (s *Setting) threads() int            { return cmp.Or(s.Threads, runtime.NumCPU()) }
func (s *Setting) patience() time.Duration { return cmp.Or(s.Patience, patience) }
