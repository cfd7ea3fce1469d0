package upstream

import (
	"fmt"
	"net"
	"net/netip"
	"time"
)

// A Search is one client's way through the targets of a [Group], from the one whose
// turn it is to the first that answers. It says what to do next and is told what
// came of it; it does nothing by itself and never waits. So one order of tries, and
// one way to say why they failed, serves who dials on a goroutine and who dials on
// an event loop.
//
// The zero value is ready for Begin, and may be used again. It belongs to one
// goroutine at a time. Times are nanoseconds of any clock that never goes
// backwards.
type Search struct {
	group  *Group
	first  uint32 // the target whose turn it was
	begun  uint32 // targets
	target *target
	addrs  []Address // of the target
	at     int       // the one that is being tried
	end    int64     // of the target's time; 0 means never
	over   bool
	failed []error // causes, by address of the target
	causes []error // by target
}

// Do is what is to be done next.
type Do uint8

const (
	// GiveUp: each target was tried, or what failed would fail again. Err says why.
	GiveUp Do = iota
	// Connect to Step.Address, then call Reached or Failed.
	Connect
	// Resolve Step.Host, with Group.Resolve as a rule, then call Resolved.
	Resolve
)

// A Step of a [Search].
type Step struct {
	Do      Do
	Address Address
	Host    string
	// Timeout is for this step; 0 means none.
	Timeout time.Duration
	// MaybeSelf says that a socket can become connected to itself by connecting to
	// Address, as [ErrSelfConnect] says: whoever connects should look.
	MaybeSelf bool
}

// Begin begins a search with the target whose turn it is.
func (s *Search) Begin(g *Group) {
	*s = Search{group: g, first: g.turn.Add(1) - 1, failed: s.failed[:0], causes: s.causes[:0]}
}

// Next says what to do now.
func (s *Search) Next(now int64) Step {
	for !s.over {
		if s.target == nil {
			if s.nextTarget(now); s.target != nil && s.addrs == nil {
				return Step{Do: Resolve, Host: s.target.host, Timeout: s.left(now, 1)}
			}
			continue
		}
		addr := s.addrs[s.at]
		if own := s.group.cfg.Own; own != nil && own(addr) {
			s.Failed(ErrOwnListener, now, false)
			continue
		}
		if s.group.otherFamily(addr) {
			s.Failed(ErrSourceFamily, now, false)
			continue
		}
		return Step{Do: Connect, Address: addr, Timeout: s.left(now, len(s.addrs)-s.at), MaybeSelf: s.group.maybeSelf(addr)}
	}
	return Step{Do: GiveUp}
}

// nextTarget begins with the next target.
func (s *Search) nextTarget(now int64) {
	n := uint32(len(s.group.targets))
	if s.begun == n {
		s.over = true
		return
	}
	s.target = s.group.targets[(s.first+s.begun)%n]
	s.begun++
	s.addrs, s.at, s.end = s.target.fixed, 0, 0
	if d := s.group.cfg.ConnectTimeout; d > 0 {
		s.end = now + int64(d)
	}
}

// left is an equal share, among so many, of the time that the target has left.
func (s *Search) left(now int64, shares int) time.Duration {
	if s.end == 0 {
		return 0
	}
	return time.Duration(max((s.end-now)/int64(shares), 1))
}

// Resolved tells what the host's name stands for, or why that is not known.
// canceled says that the client is to be given up.
func (s *Search) Resolved(ips []netip.Addr, err error, canceled bool) {
	if err == nil && len(ips) == 0 {
		err = &net.DNSError{Err: "no addresses", Name: s.target.host, IsNotFound: true}
	}
	if err != nil {
		err = s.group.explain(Address{}, err)
		s.failed = append(s.failed, err)
		s.leave(canceled || ownFault(err))
		return
	}
	for _, ip := range ips {
		s.addrs = append(s.addrs, Address{AddrPort: netip.AddrPortFrom(ip.Unmap(), s.target.port)})
	}
}

// Failed tells why the address was not reached.
func (s *Search) Failed(err error, now int64, canceled bool) {
	addr := s.addrs[s.at]
	err = s.group.explain(addr, err)
	if len(s.addrs) > 1 {
		err = fmt.Errorf("%s: %w", addr, err)
	}
	s.failed = append(s.failed, err)
	s.at++
	halt := canceled || ownFault(err)
	if halt || s.at == len(s.addrs) || s.end != 0 && now >= s.end {
		s.leave(halt)
	}
}

// leave ends the tries of a target that was not reached. halt says that it is not
// the target's fault, and that no other is to be tried.
func (s *Search) leave(halt bool) {
	cause := line(s.failed)
	s.failed = nil // cause has it
	s.causes = append(s.causes, fmt.Errorf("connect to %s: %w", s.target.addr, cause))
	if halt {
		s.over = true
	} else {
		s.group.down(s.target, cause)
	}
	s.target = nil
}

// Reached tells that the address was.
func (s *Search) Reached() { s.group.up(s.target) }

// Err says why no target was reached, as [Group.Dial] does.
func (s *Search) Err() error {
	err := line(s.causes)
	s.causes = nil // err has it
	return err
}
