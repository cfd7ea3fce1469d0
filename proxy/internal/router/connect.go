package router

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
)

// connect says which of the endpoint's addresses is to be connected to.
func (s *Search) connect(now int64) (worker.Step, bool) {
	if s.addrs == nil {
		return worker.Step{Action: worker.Resolve, Host: s.endpoint.host, Resolver: s.resolver(), Timeout: s.left(now, 1), Recheck: recheckEvery}, true
	}
	snap := s.snapshot
	return worker.Step{
		Action: worker.Connect, Address: s.addrs[s.at], Source: s.source(), Timeout: s.left(now, len(s.addrs)-s.at),
		Congestion: s.congestion(), MaybeSelf: s.endpoint.self, ProxyHeader: snap.SendProxy > 0, Recheck: recheckEvery,
	}, true
}

// source is the local address to connect from; a unix socket has none.
func (s *Search) source() netip.Addr {
	if s.addrs[s.at].Path != "" {
		return netip.Addr{}
	}
	return s.snapshot.Source
}

// congestion is the congestion control of the connection; a unix socket has none.
func (s *Search) congestion() *sockopt.Congestion {
	if s.addrs[s.at].Path != "" {
		return nil
	}
	return s.snapshot.Congestion
}

// left is an equal share, among so many, of the time that the endpoint has left.
func (s *Search) left(now int64, shares int) time.Duration {
	if s.end == 0 {
		return 0
	}
	return time.Duration(max((s.end-now)/int64(shares), 1))
}

// Resolved implements [worker.Search].
func (s *Search) Resolved(ips []netip.Addr, err error) {
	if err == worker.ErrAbandoned {
		s.abandoned(s.listener.now())
		return
	}
	if err == nil && len(ips) == 0 {
		err = &net.DNSError{Err: "no addresses", Name: s.endpoint.host, IsNotFound: true}
	}
	if err != nil {
		s.failed = append(s.failed, err)
		s.missed(s.listener.now(), health.ConnectFailed)
		return
	}
	for _, ip := range ips {
		s.addrs = append(s.addrs, loop.Address{AddrPort: netip.AddrPortFrom(ip.Unmap(), s.endpoint.port)})
	}
}

// Failed implements [worker.Search].
func (s *Search) Failed(err error, now int64) {
	if s.endpoint == nil { // an original destination
		s.giveUp(fmt.Errorf("connect to %s: %w", s.original.AddrPort, err))
		return
	}
	if err == worker.ErrAbandoned {
		s.abandoned(now)
		return
	}
	if len(s.addrs) > 1 {
		err = fmt.Errorf("%s: %w", s.addrs[s.at].AddrPort, err)
	}
	s.failed = append(s.failed, err)
	if s.at++; s.at < len(s.addrs) && (s.end == 0 || now < s.end) {
		return
	}
	if s.turnsDown(err) {
		s.turnedDown(err, now)
		return
	}
	o := health.ConnectFailed
	switch {
	case ownFault(err):
		o = health.Unknown
	case errors.Is(err, syscall.ECONNRESET):
		// It was reached, and has reset the connection before any look at it: one that is
		// refused fails with ECONNREFUSED (net/ipv4/tcp_input.c, tcp_reset).
		o = health.Reset
		s.touched(now)
	}
	s.missed(now, o)
}

// touched reports to the monitors that the endpoint was reached.
func (s *Search) touched(now int64) {
	if s.breaker != nil {
		s.breaker.Reached()
	}
	if m := s.endpoint.monitor.Load(); m != nil {
		m.Reached(now)
	}
}
