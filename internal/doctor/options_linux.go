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
	Works bool `json:"works"`

	err   error
	works string // what was seen
	cost  string // without it
	place
}

func (p *patient) option(works, cost string, err error) option {
	p.sandbox("setsockopt", err)
	return option{Works: err == nil, err: err, works: works, cost: cost, place: p.place}
}

func (f option) judge() finding {
	switch {
	case f.Works:
		return finding{state: OK, found: f.works}
	case errors.Is(f.err, syscall.ENOPROTOOPT), errors.Is(f.err, syscall.EOPNOTSUPP), errors.Is(f.err, syscall.EINVAL), errors.Is(f.err, errNoEffect):
		return finding{state: Missing, found: "this kernel does not have it: " + cause(f.err), cost: f.cost, mend: []string{"a newer kernel"}}
	case forbidden(f.err):
		return finding{state: Missing, found: "refused: " + cause(f.err), cost: f.cost, mend: f.allow("setsockopt")}
	}
	return finding{state: Unknown, found: "could not be tried: " + cause(f.err), cost: ifMissing + f.cost}
}

// errNoEffect is what an option gets that can be set and does nothing.
var errNoEffect = errors.New("it is accepted and has no effect")

func set(c syscall.Conn, level, name, value int) error {
	return inspect(c, func(fd int) error {
		return os.NewSyscallError("setsockopt", sys.SetsockoptInt(fd, level, name, value))
	})
}

func lookLowat(p *patient) facts {
	return p.option("SO_RCVLOWAT: a reader is woken for a part of many bytes",
		"bulk flows cannot be told to wait for more, which halves the CPU per GB (to 0.34–0.48 from 0.63–0.9 of HAProxy's)", tryLowat())
}

// lowat is a number of bytes to wait for.
const lowat = 4096

// tryLowat sees that a socket is readable at the mark and not before.
func tryLowat() error {
	client, server, err := connect(either(), nil)
	if err != nil {
		return err
	}
	defer client.Close()
	defer server.Close()
	if err := set(server, sys.SOL_SOCKET, sys.SO_RCVLOWAT, lowat); err != nil {
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

// arrives waits until the client's bytes are at the server and compares what poll
// says of it.
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

func lookUserTimeout(p *patient) facts {
	return p.option("TCP_USER_TIMEOUT can be set", "a peer that vanished is noticed by the kernel after 924 s or more instead of --user-timeout", tryUserTimeout())
}

func tryUserTimeout() error {
	l, err := listen(either(), func(fd int) error {
		const wanted = 12_345 // ms
		if err := sys.SetsockoptInt(fd, sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT, wanted); err != nil {
			return os.NewSyscallError("setsockopt TCP_USER_TIMEOUT", err)
		}
		if got, err := sys.GetsockoptInt(fd, sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT); err != nil || got != wanted {
			return errors.Join(errNoEffect, err)
		}
		return nil
	})
	if err == nil {
		l.Close()
	}
	return err
}

func lookReuseport(p *patient) facts {
	return p.option("SO_REUSEPORT: two listeners share a port", "a second process cannot take a port over while the first still listens", tryReuseport())
}

func tryReuseport() error {
	shared := func(fd int) error {
		return os.NewSyscallError("setsockopt SO_REUSEPORT", sys.SetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_REUSEPORT, 1))
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

// zerocopy is what becomes of MSG_ZEROCOPY.
type zerocopy struct {
	option
	Copied bool `json:"copied_on_loopback"`
}

func lookZerocopy(p *patient) facts {
	copied, err := tryZerocopy()
	works := "MSG_ZEROCOPY sends and reports back (over loopback it copies)"
	if !copied {
		works = "MSG_ZEROCOPY sends without a copy, and reports back"
	}
	return zerocopy{option: p.option(works, "nothing in this release, which does not use it", err), Copied: copied}
}

func tryZerocopy() (copied bool, err error) {
	client, server, err := connect(either(), nil)
	if err != nil {
		return false, err
	}
	defer client.Close()
	defer server.Close()
	if err := set(client, sys.SOL_SOCKET, sys.SO_ZEROCOPY, 1); err != nil {
		return false, err
	}
	err = inspect(client, func(fd int) error {
		_, err := sys.Send(fd, make([]byte, 16<<10), sys.MSG_ZEROCOPY|sys.MSG_NOSIGNAL|sys.MSG_DONTWAIT)
		return os.NewSyscallError("sendto MSG_ZEROCOPY", err)
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
