package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// option is a socket option that was tried.
type option struct {
	Works tristate `json:"works,omitzero"`

	err  error
	seen string // if it works
	cost string // without it
	place
}

func (p *process) option(seen, cost string, err error) option {
	p.sandbox(err)
	return option{Works: works(err), err: err, seen: seen, cost: cost, place: p.place}
}

func (f option) judge() finding {
	switch {
	case f.err == nil:
		return finding{state: OK, found: f.seen}
	case refused(f.err):
		return finding{state: Missing, found: "refused: " + cause(f.err), cost: f.cost, mend: f.allow(callOf(f.err))}
	case isAnswer(f.err):
		return finding{state: Missing, found: "this kernel does not have it: " + cause(f.err), cost: f.cost, mend: []string{"a newer kernel"}}
	}
	return finding{state: Unknown, found: "could not be tried: " + cause(f.err), cost: ifMissing + f.cost}
}

// set sets an option of a connection; name is for the error.
func set(c syscall.Conn, name string, level, option, value int) error {
	return inspect(c, func(fd int) error {
		return answered("setsockopt "+name, sys.SetsockoptInt(fd, level, option, value))
	})
}

func lookLowat(p *process) facts {
	return p.option("SO_RCVLOWAT: a reader is woken for a part of many bytes",
		"bulk flows wake the proxy for every few segments: over one connection 0.80 of io.Copy's CPU per GB instead of 0.64", tryLowat())
}

// lowat is a number of bytes to wait for.
const lowat = 4096

// tryLowat tries a few times before it says that the option has no effect: a kernel that is short of memory for TCP wakes
// readers before the mark (net/ipv4/tcp.c, tcp_epollin_ready).
func tryLowat() (err error) {
	for pause := time.Millisecond; pause < 100*time.Millisecond; pause *= 4 {
		if err = tryLowatOnce(); !errors.Is(err, errNoEffect) {
			return err
		}
		time.Sleep(pause)
	}
	return err
}

// tryLowatOnce sees that a socket is readable at the mark and not before.
func tryLowatOnce() error {
	client, server, err := connect(either(), nil)
	if err != nil {
		return err
	}
	defer client.Close()
	defer server.Close()
	if err := set(server, "SO_RCVLOWAT", sys.SOL_SOCKET, sys.SO_RCVLOWAT, lowat); err != nil {
		return err
	}
	for _, step := range []struct {
		bytes    int
		readable bool
	}{{lowat - 1, false}, {1, true}} {
		if _, err := client.Write(make([]byte, step.bytes)); err != nil {
			return err
		}
		if err := arrives(client, server, step.readable); err != nil {
			return err
		}
	}
	return nil
}

// arrives waits until the client's bytes are at the server and compares poll's answer.
func arrives(client, server *net.TCPConn, readable bool) error {
	acknowledged := func() (done bool, err error) {
		err = inspect(client, func(fd int) error {
			left, err := sys.SIOCOUTQ(fd)
			done = left == 0
			return os.NewSyscallError("ioctl SIOCOUTQ", err)
		})
		return done, err
	}
	if err := until(acknowledged); err != nil {
		return err
	}
	return inspect(server, func(fd int) error {
		events, err := sys.Poll(fd, sys.POLLIN)
		if err == nil && (events&sys.POLLIN != 0) != readable {
			err = errNoEffect
		}
		return err
	})
}

// until asks again and again, for at most a moment, until the answer is yes.
func until(f func() (bool, error)) error {
	for deadline, pause := time.Now().Add(soon), 10*time.Microsecond; ; pause *= 2 {
		done, err := f()
		if done || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return os.ErrDeadlineExceeded
		}
		time.Sleep(pause)
	}
}

func lookUserTimeout(p *process) facts {
	return p.option("TCP_USER_TIMEOUT can be set", "a peer that vanished is noticed after all of the kernel's retransmissions (net.ipv4.tcp_retries2) instead of --user-timeout", tryUserTimeout())
}

func tryUserTimeout() error {
	l, err := listen(either(), func(fd int) error {
		const wanted = 12_345 // ms
		if err := sys.SetsockoptInt(fd, sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT, wanted); err != nil {
			return answered("setsockopt TCP_USER_TIMEOUT", err)
		}
		got, err := sys.GetsockoptInt(fd, sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT)
		return expect(got, wanted, "getsockopt TCP_USER_TIMEOUT", err)
	})
	if err == nil {
		l.Close()
	}
	return err
}

func lookReuseport(p *process) facts {
	return p.option("SO_REUSEPORT: two listeners share a port", "a second process cannot take a port over while the first still listens", tryReuseport())
}

func tryReuseport() error {
	shared := func(fd int) error {
		return answered("setsockopt SO_REUSEPORT", sys.SetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_REUSEPORT, 1))
	}
	l, err := listen(either(), shared)
	if err != nil {
		return err
	}
	defer l.Close()
	lc := net.ListenConfig{Control: controls(shared)}
	lc.SetMultipathTCP(false)
	again, err := lc.Listen(context.Background(), "tcp", l.Addr().String())
	if err == nil {
		again.Close()
	}
	return err
}

// zerocopy is the finding on MSG_ZEROCOPY.
type zerocopy struct {
	option
	Copied tristate `json:"copied_on_loopback,omitzero"`
}

func lookZerocopy(p *process) facts {
	copied, err := tryZerocopy()
	seen := "MSG_ZEROCOPY sends and reports back (over loopback it copies)"
	if !copied {
		seen = "MSG_ZEROCOPY sends without a copy, and reports back"
	}
	p.sandboxUnused(err)
	o := option{Works: works(err), err: err, seen: seen, cost: "nothing: this release does not use it", place: p.place}
	return zerocopy{option: o, Copied: tristate{copied, err == nil}}
}

func (f zerocopy) judge() finding {
	verdict := f.option.judge()
	if verdict.state == Missing {
		return unused(verdict.found)
	}
	return verdict
}

func tryZerocopy() (copied bool, err error) {
	client, server, err := connect(either(), nil)
	if err != nil {
		return false, err
	}
	defer client.Close()
	defer server.Close()
	if err := set(client, "SO_ZEROCOPY", sys.SOL_SOCKET, sys.SO_ZEROCOPY, 1); err != nil {
		return false, err
	}
	err = inspect(client, func(fd int) error {
		_, err := sys.Send(fd, make([]byte, 16<<10), sys.MSG_ZEROCOPY|sys.MSG_NOSIGNAL|sys.MSG_DONTWAIT)
		return answered("sendto MSG_ZEROCOPY", err)
	})
	if err != nil {
		return false, err
	}
	if _, err := server.Read(make([]byte, 16<<10)); err != nil {
		return false, err
	}
	err = until(func() (done bool, err error) {
		err = inspect(client, func(fd int) error {
			copied, err = sys.ZerocopyDone(fd)
			return err
		})
		if err == syscall.EAGAIN {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return false, fmt.Errorf("MSG_ZEROCOPY: %w", err)
	}
	return copied, nil
}
