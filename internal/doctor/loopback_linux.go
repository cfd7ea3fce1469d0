package doctor

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"time"
)

// soon bounds each exchange over loopback, which takes microseconds.
const soon = 2 * time.Second

// loopback is the finding on TCP over the loopback interface.
type loopback struct {
	IPv4 bool   `json:"ipv4"`
	IPv6 bool   `json:"ipv6"`
	Up   number `json:"interfaces_up,omitzero"` // any

	ipv4, ipv6 error
	down       bool // the loopback interface, as far as is known
	place
}

func lookLoopback(p *process) facts {
	f := loopback{ipv4: exchange("tcp4"), ipv6: exchange("tcp6"), place: p.place}
	f.IPv4, f.IPv6 = f.ipv4 == nil, f.ipv6 == nil
	for _, err := range []error{f.ipv4, f.ipv6} {
		p.sandbox(err)
	}
	if all, err := net.Interfaces(); err == nil {
		f.count(all)
	}
	return f
}

func (f *loopback) count(all []net.Interface) {
	f.Up.known = true
	for _, i := range all {
		if i.Flags&net.FlagUp != 0 {
			f.Up.value++
		} else if i.Flags&net.FlagLoopback != 0 {
			f.down = true
		}
	}
}

func (f loopback) judge() finding {
	switch {
	case f.IPv4 && f.IPv6:
		return finding{state: OK, found: "TCP connections over 127.0.0.1 and ::1"}
	case f.IPv4:
		return finding{state: OK, found: "TCP connections over 127.0.0.1; IPv6 is off"}
	case f.IPv6:
		return finding{state: OK, found: "TCP connections over ::1; IPv4 is off"}
	}
	verdict := finding{
		state: Degraded, found: "no TCP connection over loopback: " + cause(f.why()), mend: f.mend(),
		cost: "clients and targets on this host are out of reach, penstock-bench and demo fail, and the unknown items below could not be tried; other interfaces are served",
	}
	if f.cannotServe() {
		verdict.state, verdict.unable = Missing, true
		verdict.cost = "Penstock cannot run: it can accept no connection"
	}
	return verdict
}

// why is the error that counts: IPv6's only where there is no IPv4.
func (f loopback) why() error {
	if errors.Is(f.ipv4, syscall.EAFNOSUPPORT) {
		return f.ipv6
	}
	return f.ipv4
}

// cannotServe reports whether there is nothing to listen on, or a call that every listener
// needs is refused. That loopback leads nowhere does not keep Penstock from serving other
// interfaces.
func (f loopback) cannotServe() bool {
	err := f.why()
	switch callOf(err) {
	case "socket", "setsockopt", "bind", "listen", "accept4":
		if forbidden(err) || errors.Is(err, syscall.EAFNOSUPPORT) {
			return true
		}
	}
	return f.Up == known(0)
}

func (f loopback) mend() []string {
	switch err := f.why(); {
	case forbidden(err) && callOf(err) != "":
		return f.allow(callOf(err))
	case f.down:
		return []string{"ip link set lo up"}
	}
	return []string{"a firewall that lets 127.0.0.0/8 and ::1 through"}
}

// exchange sends one byte over a connection of its own.
func exchange(network string) error {
	a, b, err := connect(network, nil)
	if err != nil {
		return err
	}
	defer a.Close()
	defer b.Close()
	if _, err := a.Write([]byte{1}); err != nil {
		return err
	}
	_, err = b.Read(make([]byte, 1))
	return err
}

// connect returns the two ends of a TCP connection over loopback, with a deadline;
// the caller closes both. control, if any, is called with the client's socket
// before it connects.
func connect(network string, control func(fd int) error) (client, server *net.TCPConn, err error) {
	l, err := listen(network, nil)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	d := net.Dialer{Timeout: soon, Control: controls(control)}
	d.SetMultipathTCP(false)
	c, err := d.Dial(network, l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	l.SetDeadline(time.Now().Add(soon))
	s, err := l.AcceptTCP()
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	client, server = c.(*net.TCPConn), s
	for _, conn := range []*net.TCPConn{client, server} {
		conn.SetDeadline(time.Now().Add(soon))
	}
	return client, server, nil
}

// listen listens on a free port of loopback; the caller closes it. control, if any,
// is called before it is bound.
func listen(network string, control func(fd int) error) (*net.TCPListener, error) {
	lc := net.ListenConfig{Control: controls(control)}
	lc.SetMultipathTCP(false)
	address := "127.0.0.1:0"
	if strings.HasSuffix(network, "6") {
		address = "[::1]:0"
	}
	l, err := lc.Listen(context.Background(), network, address)
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// controls makes of a function on a descriptor one that package net takes.
func controls(f func(fd int) error) func(string, string, syscall.RawConn) error {
	if f == nil {
		return nil
	}
	return func(_, _ string, raw syscall.RawConn) error { return control(raw, f) }
}

// control calls f with the descriptor of a socket, which f only borrows.
func control(raw syscall.RawConn, f func(fd int) error) error {
	var err error
	if outer := raw.Control(func(fd uintptr) { err = f(int(fd)) }); outer != nil {
		return outer
	}
	return err
}

// inspect is control for a connection with a RawConn.
func inspect(c syscall.Conn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return control(raw, f)
}

// either returns the network on which TCP works here.
func either() string {
	if exchange("tcp4") != nil && exchange("tcp6") == nil {
		return "tcp6"
	}
	return "tcp4"
}
