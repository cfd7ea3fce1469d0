package lane

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/cilium/ebpf"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane/internal/program"
	"github.com/penstock/penstock/lane/internal/state"
)

// legOf returns the addresses of a connection.
func legOf(c *net.TCPConn) program.Leg {
	at := func(a net.Addr) netip.AddrPort {
		p := a.(*net.TCPAddr).AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return program.Leg{Remote: at(c.RemoteAddr()), Local: at(c.LocalAddr())}
}

// fit returns why sessions with those legs can never leave user space.
func fit(legs [2]program.Leg) Reason {
	if legs[0].Remote.Addr().Is4() != legs[1].Remote.Addr().Is4() {
		return MixedFamilies
	}
	for _, l := range legs {
		if a := l.Remote.Addr(); a.Zone() != "" || a.IsLinkLocalUnicast() && a.Is6() {
			return LinkLocal
		}
	}
	if legs[0] == (program.Leg{Remote: legs[1].Local, Local: legs[1].Remote}) {
		return SharedConnection
	}
	return None
}

// transportOf is transport of a connection.
func transportOf(c *net.TCPConn) (why Reason, err error) {
	raw, err := c.SyscallConn()
	if err != nil { // a zero connection
		return None, os.ErrInvalid
	}
	if e := raw.Control(func(fd uintptr) { why, err = transport(int(fd)) }); e != nil {
		return None, e
	}
	return why, err
}

// transport returns why sessions of a descriptor can never leave user space, or an error if it cannot be found out.
func transport(fd int) (Reason, error) {
	protocol, err := sys.GetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_PROTOCOL)
	switch {
	case errors.Is(err, syscall.ENOTSOCK):
		return NotTCP, nil
	case err != nil:
		return None, os.NewSyscallError("getsockopt SO_PROTOCOL", err)
	case protocol == multipathTCP:
		return Multipath, nil
	case protocol != sys.IPPROTO_TCP:
		return NotTCP, nil
	}
	return None, nil
}

// multipathTCP is IPPROTO_MPTCP (include/uapi/linux/in.h).
const multipathTCP = 262

// register gives a session a slot with a mark, and returns why it cannot have one. It needs the lock.
func (l *Lane) register(s *Session, legs [2]program.Leg, m *mark) Reason {
	if r := fit(legs); r != None {
		return r
	}
	slot, ok := l.free.next()
	if !ok {
		return Full
	}
	l.generation++
	switch err := l.program.Register(slot, l.generation, legs); {
	case errors.Is(err, program.ErrBothEnds):
		return SharedConnection
	case errors.Is(err, ebpf.ErrKeyExist):
		return JoinedAlready
	case err != nil:
		return Full // of the table of connections
	}
	l.free.take(slot)
	s.slot = slot
	l.sessions[slot] = s
	s.of.count(1)
	s.mark(m)
	l.batch.waiting = append(l.batch.waiting, s)
	l.knocked()
	return None
}

// release gives the slot of a session that is over back, once its tuples lead nowhere and no CPU looks at it
// any more.
func (l *Lane) release(s *Session, from state.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions[s.slot] != s {
		return
	}
	s.letGo()
	l.program.Forget(s.slot)
	l.program.Session(s.slot).Change(state.Free, from)
	l.sessions[s.slot] = nil
	s.of.count(-1)
	l.batch.ended = append(l.batch.ended, s.slot)
	l.knocked()
}

// knocked has the goroutine of grace periods look. It needs the lock.
func (l *Lane) knocked() {
	select {
	case l.knock <- struct{}{}:
	default:
	}
}

// A batch is work for the goroutine of grace periods.
type batch struct {
	departing []departure // sockets to be closed
	waiting   []*Session  // to be armed after a grace period
	resetting []*Session  // held, to be reset after one
	ended     []uint32    // slots that a CPU may still look at: free after one
}

// wait waits for grace periods: one for all that ask for it meanwhile.
func (l *Lane) wait() {
	for {
		select {
		case <-l.knock:
		case <-l.stop:
			return
		}
		l.mu.Lock()
		b := l.batch
		l.batch = batch{}
		l.mu.Unlock()
		for _, d := range b.departing {
			d.session.leaveSockets(d.sockets)
		}
		if len(b.waiting)+len(b.resetting)+len(b.ended) == 0 {
			continue
		}
		err := sys.GracePeriod() // it worked in Probe: without it nothing leaves user space
		for _, s := range b.resetting {
			s.resetHeld(nil) // a program that has begun before goes on; one packet more changes nothing here
		}
		if err != nil { // the next period is for these too
			l.mu.Lock()
			l.batch.waiting, l.batch.ended = append(l.batch.waiting, b.waiting...), append(l.batch.ended, b.ended...)
			l.mu.Unlock()
			continue
		}
		for _, s := range b.waiting {
			s.grace()
		}
		l.mu.Lock()
		for _, slot := range b.ended {
			l.free.give(slot)
		}
		l.mu.Unlock()
	}
}
