package contestant

import (
	"cmp"
	"runtime"
	"time"

	"github.com/penstock/penstock/bench/process"
)

// patience is Setting.Patience unless set.
const patience = 10 * time.Second

// PartRival is the name of the part (see Program) that runs package rival. Its
// arguments are the upstream address and RivalSplice, RivalCopy or RivalRelay. It prints
// {"address":"127.0.0.1:41235"} on standard output once it listens.
const (
	PartRival   = "rival"
	RivalSplice = "splice"
	RivalCopy   = "copy"
	RivalRelay  = "relay"
)

// Program is how to run the program that contains the parts of a benchmark and
// the proxy.
type Program struct {
	Path string // of the executable with the parts
	Name string // its first argument
	// Part are the arguments of that which lead to a part; the part's name and its
	// arguments follow.
	Part []string
	// PenstockPath is the path of the penstock program; "" for Path.
	PenstockPath string
	// Proxy and Run are the arguments of penstock that lead to the proxy and to the load
	// balancer; their flags follow.
	Proxy, Run []string
	// Env is the children's environment; nil for this process's own.
	Env []string
}

// Penstock is the penstock program with some arguments: command is Proxy or Run, args
// follow it.
func (p *Program) Penstock(name string, command []string, args ...string) process.Spec {
	spec := p.Spec(name, command, args...)
	if p.PenstockPath != "" {
		spec.Path, spec.Args[0] = p.PenstockPath, "penstock"
	}
	return spec
}

// Spec is the program with some arguments: command is Part, args follow it.
func (p *Program) Spec(name string, command []string, args ...string) process.Spec {
	all := append([]string{p.Name}, command...)
	return process.Spec{Name: name, Path: p.Path, Args: append(all, args...), Env: p.Env}
}

// Setting is where a contestant is to work.
type Setting struct {
	Group    *process.Group // in which it is started; may be isolated
	Program  Program        // of Penstock and the rival
	Upstream string         // IPv4 address and port to forward to
	// Endpoints are the addresses to which the kinds of Balancing forward, in place of
	// Upstream. The others are to be given none.
	Endpoints []string
	// Listen is the IPv4 address and port to listen at; "" and port 0 leave
	// the choice of a port to the kernel.
	Listen string
	// Dir is where configurations and unix sockets are put, each start in a
	// new directory below it, which the caller removes with Dir.
	Dir string
	// Certificate is a file with a certificate and its key, in PEM, by which the kinds of
	// Terminating terminate TLS; the others are to be given none.
	Certificate string
	// Binaries names executables, by the names "haproxy", "nginx" and "envoy". Others
	// are searched in PATH and where servers are installed.
	Binaries map[string]string
	// Threads is the number of nginx's workers and of Envoy's threads; 0 means
	// one for each processor. The other contestants have theirs in the name, or
	// decide themselves.
	Threads int
	// Patience is how long a contestant may take to accept connections, and to
	// let go of ended connections; 0 means 10 s.
	Patience time.Duration
}

// endpoints are the addresses to forward to.
func (s *Setting) endpoints() []string {
	if len(s.Endpoints) > 0 {
		return s.Endpoints
	}
	return []string{s.Upstream}
}

func (s *Setting) listen() string          { return cmp.Or(s.Listen, "127.0.0.1:0") }
func (s *Setting) threads() int            { return cmp.Or(s.Threads, runtime.NumCPU()) }
func (s *Setting) patience() time.Duration { return cmp.Or(s.Patience, patience) }
