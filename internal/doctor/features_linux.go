package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
)

// errNoEffect is the error of an option that can be set but does nothing.
var errNoEffect = errors.New("the kernel accepts it, but it has no effect")

// refused reports whether an error means that the kernel or a sandbox refuses a thing to this process for good,
// so that it cannot succeed next time.
func refused(err error) bool {
	for _, errno := range []error{syscall.EPERM, syscall.EACCES, syscall.ENOSYS, syscall.EINVAL, syscall.ENOPROTOOPT, syscall.EOPNOTSUPP, errNoEffect, feature.ErrNotSupported} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// callOf returns the name of the system call that failed, or "". A SyscallError may have an argument after the
// name, as in "setsockopt SO_RCVLOWAT".
func callOf(err error) string {
	var failed *os.SyscallError
	if !errors.As(err, &failed) {
		return ""
	}
	call, _, _ := strings.Cut(failed.Syscall, " ")
	return call
}

// cause returns an error without the names of the endpoints.
func cause(err error) string {
	var call *os.SyscallError
	if errors.As(err, &call) {
		return call.Error()
	}
	return err.Error()
}

// verdict judges a feature by the error of its probe: seen is the finding if it works, and cost the price if
// not.
func (p *process) verdict(err error, seen, cost string) Check {
	switch {
	case err == nil:
		return Check{State: OK, Found: seen}
	case !refused(err):
		return Check{State: Unknown, Found: "could not be tested: " + cause(err), Cost: "if it is missing, " + cost}
	}
	c := Check{State: Missing, Found: "refused: " + cause(err), Cost: cost, Mend: []string{"a newer kernel"}}
	if call := callOf(err); call != "" && !errors.Is(err, errNoEffect) {
		c.Mend = p.allow(call)
	}
	return c
}

func lookLoopback(p *process) Check {
	v4, v6 := exchange("tcp4"), exchange("tcp6")
	if v4 == nil || v6 == nil {
		works := map[bool]string{true: "works", false: "is off"}
		return Check{State: OK, Found: fmt.Sprintf("TCP connections over loopback: IPv4 %s, IPv6 %s", works[v4 == nil], works[v6 == nil])}
	}
	err := v4
	if errors.Is(v4, syscall.EAFNOSUPPORT) {
		err = v6
	}
	c := Check{
		State: Degraded, Found: "no TCP connection over loopback: " + cause(err),
		Cost: "clients and endpoints on this host cannot be reached, penstock demo fails, and the unknown items below could not be tested; other interfaces work",
		Mend: []string{"ip link set lo up", "let the firewall accept 127.0.0.0/8 and ::1"},
	}
	call := callOf(err)
	if refused(err) && call != "" {
		c.Mend = p.allow(call)
	}
	// Without loopback Penstock can still serve other interfaces. It cannot if a call is refused that every
	// listener needs.
	if (refused(err) || errors.Is(err, syscall.EAFNOSUPPORT)) && strings.Contains(" socket setsockopt bind listen accept4 ", " "+call+" ") {
		c.State, c.unable, c.Cost = Missing, true, "Penstock cannot run, because it cannot accept connections"
	}
	return c
}

// soon bounds an exchange over loopback, which usually takes microseconds.
const soon = 2 * time.Second

func exchange(network string) error {
	l, err := listen(network)
	if err != nil {
		return err
	}
	defer l.Close()
	l.SetDeadline(time.Now().Add(soon))
	client, err := net.DialTimeout(network, l.Addr().String(), soon)
	if err != nil {
		return err
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		return err
	}
	defer server.Close()
	if _, err := client.Write([]byte{1}); err != nil {
		return err
	}
	server.SetDeadline(time.Now().Add(soon))
	_, err = server.Read(make([]byte, 1))
	return err
}

// listen listens on a free port of loopback; the caller closes it.
func listen(network string) (*net.TCPListener, error) {
	address := "127.0.0.1:0"
	if network == "tcp6" {
		address = "[::1]:0"
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), network, address)
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// inspect calls f with the descriptor of a listener, which f borrows.
func inspect(l *net.TCPListener, f func(fd int) error) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	if outer := raw.Control(func(fd uintptr) { err = f(int(fd)) }); outer != nil {
		return outer
	}
	return err
}

// either returns a network on which TCP works here.
func either() string {
	if exchange("tcp4") != nil && exchange("tcp6") == nil {
		return "tcp6"
	}
	return "tcp4"
}

func lookSplice(p *process) Check {
	return p.verdict(feature.Splice(), "bytes can move from one socket to another through a pipe", copying)
}

// lookOption sets a socket option, and reads it back.
func lookOption(name string, level, option, value int, cost string) func(p *process) Check {
	return func(p *process) Check {
		l, err := listen(either())
		if err != nil {
			return Check{State: Unknown, Found: "could not be tested: " + cause(err), Cost: "if it is missing, " + cost}
		}
		defer l.Close()
		err = inspect(l, func(fd int) error {
			if err := sys.SetsockoptInt(fd, level, option, value); err != nil {
				return os.NewSyscallError("setsockopt "+name, err)
			}
			got, err := sys.GetsockoptInt(fd, level, option)
			if err == nil && got != value {
				return errNoEffect
			}
			return os.NewSyscallError("getsockopt "+name, err)
		})
		return p.verdict(err, name+" can be set", cost)
	}
}

// lookExecutable tries what the compiler of filters needs. The figures are from docs/filters.md.
func lookExecutable(p *process) Check {
	c := p.verdict(feature.ExecutableMemory(), "memory can be made executable, so WebAssembly filters are compiled",
		"WebAssembly filters are interpreted: a small filter takes twice as long for each client, a filter in Go seven times as long. Nothing else needs executable memory")
	if c.State == Missing {
		c.State, c.Mend = Degraded, p.mend(remedy{unit: "MemoryDenyWriteExecute=no", host: "let the service manager and the security modules allow mprotect(2) with PROT_EXEC"})
	}
	return c
}

func lookCapabilities(p *process) Check {
	var costs, lacks []string
	if p.misses(sys.CAP_NET_BIND_SERVICE) {
		costs, lacks = append(costs, "it cannot listen on ports below 1024 (CAP_NET_BIND_SERVICE)"), append(lacks, "NET_BIND_SERVICE")
	}
	if p.misses(sys.CAP_SYS_RESOURCE) {
		costs, lacks = append(costs, "it cannot exceed the user's quota of pipes, nor the hard limit of descriptors (CAP_SYS_RESOURCE)"), append(lacks, "SYS_RESOURCE")
	}
	c := judged(fmt.Sprintf("uid %d", p.user), strings.Join(costs, "; "), p.grant(lacks))
	switch {
	case len(lacks) > 0:
		c.Found += ", without " + strings.Join(lacks, " and ")
	case p.user == 0 && !p.nested && p.effective.Has(sys.CAP_SYS_ADMIN) && p.effective.Has(sys.CAP_SYS_PTRACE):
		c.Found += ", with all capabilities, more than serving needs: a user of its own is safer"
	default:
		c.Found += ", with the capabilities that serving needs"
	}
	if p.nested {
		c.Found += "; in its own user namespace"
	}
	return c
}

// misses reports whether it matters that a capability is missing. CAP_SYS_ADMIN lifts the quota of pipes too,
// but either capability does so only in the first user namespace, and all ports may be free for everybody.
func (p *process) misses(bit int) bool {
	switch bit {
	case sys.CAP_SYS_RESOURCE:
		return p.nested || !p.effective.Has(bit) && !p.effective.Has(sys.CAP_SYS_ADMIN)
	case sys.CAP_NET_BIND_SERVICE:
		return !p.effective.Has(bit) && p.parameter("net.ipv4.ip_unprivileged_port_start") != 0
	}
	return !p.effective.Has(bit)
}
