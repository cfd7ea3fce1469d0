package doctor

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// soon bounds each exchange over loopback, which takes microseconds.
const soon = 2 * time.Second

// forbidden tells whether the kernel or a sandbox refuses to do a thing at all.
func forbidden(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOSYS)
}

// cause is an error without the names of the endpoints.
func cause(err error) string {
	var call *os.SyscallError
	if errors.As(err, &call) {
		return call.Error()
	}
	return err.Error()
}

// loopback is what TCP over the loopback interface does.
type loopback struct {
	IPv4 bool `json:"ipv4"`
	IPv6 bool `json:"ipv6"`

	err error
}

func lookLoopback(*patient) facts {
	var f loopback
	f.err = exchange("tcp4")
	f.IPv4 = f.err == nil
	f.IPv6 = exchange("tcp6") == nil
	return f
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
	return finding{
		state: Missing, unable: true,
		found: "no TCP connection over loopback: " + cause(f.err),
		cost:  "Penstock cannot run: it can neither listen nor dial",
		mend:  []string{"ip link set lo up", "a sandbox that allows socket, bind, listen, connect, accept4"},
	}
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

// controls makes of a function on a descriptor what package net takes.
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

// inspect is control for what has a RawConn.
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
