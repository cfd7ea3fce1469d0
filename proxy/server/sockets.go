package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/episode"
	socketlistener "github.com/penstock/penstock/proxy/internal/listener"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
	"github.com/penstock/penstock/proxy/systemd"
)

// A listenSocket is a listening socket, for as long as a configuration names its address.
type listenSocket struct {
	listener    *socketlistener.Listener // owned
	own         []netip.AddrPort         // where clients reach it; nil: a unix socket
	fd          int                      // descriptor of listener
	listening   *worker.Listening        // nil until it is accepted from
	pauses      *episode.Episode
	state       atomic.Pointer[router.ListenerState] // of the configuration's listener; set before clients are accepted
	former      atomic.Bool                          // it was given up: another socket may have its address
	lost        atomic.Bool                          // its path was removed or replaced, as [sockets.findPaths] saw last
	later       atomic.Pointer[[]*listenSocket]      // sockets that had a part of its address after it, and were given up; the latest is last
	closed      chan struct{}                        // closed once listener is closed, if clients were accepted from it
	overlapping []*listenSocket                      // sockets from which it has taken over its address, or a part of it
	deserted    atomic.Bool                          // it is closed, and has no sessions left

	// By the configuration in force, under the server's mu:
	owner      string // the listener's name
	cfg        *config.Listener
	service    *worker.Service
	adapts     bool                // its options have changed
	before     []*worker.Listening // sockets whose sessions it has taken over
	overflows  overflowCount
	congestion string           // congestion control that this process has set; "": none
	successor  *listenSocket    // has taken over from it; nil: none, or it is deserted
	replaced   bool             // others have its address, but it is still accepted from
	closeTimer *time.Timer      // ends accepting from a replaced socket
	parting    bool             // accepting has ended: the loops empty its queue, and close it
	draining   *drainingSockets // the draining sockets that it belongs to, once it is gone; nil: none, or it is deserted
}

// The sockets of a server are its listening sockets, of the configuration in force and removed ones. Fields are guarded by the
// server's mu unless they say otherwise.
type sockets struct {
	*core
	*drains
	passed   *systemd.Sockets      // sockets from systemd
	overflow namespaceCount        // of accept queues
	view     atomic.Pointer[view]  // of the present state, for readers that must not wait
	rules    atomic.Pointer[rules] // that admit clients; nil: before the first configuration
	deserted *backlog[*listenSocket]
}

// bindOptions are the options of a listener's sockets.
type bindOptions struct {
	config.Socket
	transparent bool
}

func optionsOf(l *config.Listener) bindOptions {
	o := bindOptions{l.Socket, l.Transparent}
	o.Pos = config.Pos{}
	return o
}

// bind returns the sockets of an address: the present ones, or else new ones.
func (s *sockets) bind(ctx context.Context, c *change, l *config.Listener, at config.Bind) (keys []string, err error) {
	if at.Systemd != "" {
		return s.bindPassed(c, l, at.Systemd)
	}
	key := l.BindKey(at)
	socket := s.binds[key]
	if socket != nil && socket.stays(l) {
		c.binds[key] = socket
		c.commits = append(c.commits, func() { s.logUnchanged(socket, socket.listener.SetMode(at.Address.Mode)) })
		return []string{key}, nil
	}
	if socket != nil && strings.HasSuffix(at.Address.Name, ":0") {
		at.Address.Name = strings.TrimSuffix(at.Address.Name, "0") + portOf(socket.listener.Addr())
	}
	ln, beside, err := s.listen(ctx, c, l, at.Address)
	if err != nil {
		why := s.explainTaken(c, at, err)
		if socket == nil || socket.listener.TCP() {
			return nil, why
		}
		// Whoever may replace the path has no veto of the change.
		c.binds[key] = socket
		c.commits = append(c.commits, func() {
			s.log.Warn("a listener's unix socket cannot be bound again, and no client finds it", "listener", l.Name, "error", why)
		})
		return []string{key}, nil
	}
	if err := s.bindNew(c, key, ln); err != nil {
		return nil, err
	}
	if c.binds[key].overlapping = beside; len(beside) > 0 {
		c.successors = append(c.successors, c.binds[key])
	}
	return []string{key}, nil
}

// askPaths finds out which file systems do not answer, before a change listens at unix sockets while it holds the
// server's mu.
func askPaths(cfg *config.Config) {
	var asked sync.WaitGroup
	defer asked.Wait()
	for _, l := range cfg.Listeners {
		for _, at := range l.Bind {
			if at.Systemd == "" {
				asked.Go(func() { socketlistener.Ask(at.Address) })
			}
		}
	}
}

// findPaths looks for the paths of unix sockets, without the server's mu: a file system may not answer.
func (s *sockets) findPaths() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.binds))
	s.mu.Unlock()
	var found sync.WaitGroup
	defer found.Wait()
	for _, socket := range all {
		if !socket.listener.TCP() {
			found.Go(func() { socket.lost.Store(socket.listener.Gone()) })
		}
	}
}

// stays reports whether the socket can serve a configuration: clients find it, and its protocol cannot change.
func (socket *listenSocket) stays(l *config.Listener) bool {
	if !socket.listener.TCP() {
		return !socket.lost.Load()
	}
	return socket.cfg.Socket.MPTCP == l.Socket.MPTCP
}

func portOf(name string) string {
	_, port, _ := net.SplitHostPort(name)
	return port
}

// explainTaken adds to an error who has an address, or a part of it: a listener of this process that keeps it, systemd, or
// another process.
func (s *sockets) explainTaken(c *change, at config.Bind, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	for socket := range c.kept {
		if socket.overlaps(at.Address) {
			return fmt.Errorf("%w: listener %s of this process has %s", err, socket.owner, socket.listener.Addr())
		}
	}
	if name := s.passed.NameAt(func(own net.Addr) bool { return overlap(own.Network(), own.String(), at.Address) }); name != "" {
		return fmt.Errorf("%w: systemd has passed a socket with this address to the process: write systemd:%s in place of the address", err, name)
	}
	return socketlistener.ExplainTaken(at.Address, err)
}

func (s *sockets) bindNew(c *change, key string, ln *socketlistener.Listener) error {
	c.undo = append(c.undo, func() { ln.Close() })
	fd, err := ln.Detach()
	if err != nil {
		return err
	}
	addr := ln.Addr()
	c.binds[key] = &listenSocket{
		listener: ln, own: ln.Own(), fd: fd, closed: make(chan struct{}),
		pauses: episode.New(func() { s.log.Info("accepting has resumed", "address", addr) }),
	}
	return nil
}

// bindPassed returns the sockets that systemd has passed under a name.
func (s *sockets) bindPassed(c *change, l *config.Listener, name string) (keys []string, err error) {
	for key, socket := range s.binds.passed(name) {
		c.binds[key] = socket
		keys = append(keys, key)
	}
	if len(keys) > 0 {
		slices.Sort(keys)
		return keys, nil
	}
	list, err := s.passed.Take(name)
	if err != nil {
		return nil, err
	}
	for i, ln := range list {
		key := passedKey(name, fmt.Sprint(i))
		adopted, err := socketlistener.FromFD(ln, s.socketConfig(l))
		if err == nil {
			err = s.bindNew(c, key, adopted)
		}
		if err != nil {
			for _, rest := range list[i+1:] {
				rest.Close()
			}
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

type binds map[string]*listenSocket

// passed returns the sockets that systemd has passed under a name.
func (b binds) passed(name string) binds {
	list := make(binds)
	for key, socket := range b {
		if strings.HasPrefix(key, passedKey(name, "")) {
			list[key] = socket
		}
	}
	return list
}

func (b binds) of(l *config.Listener, at config.Bind) []*listenSocket {
	if at.Systemd != "" {
		return slices.Collect(maps.Values(b.passed(at.Systemd)))
	}
	return b.at([]string{l.BindKey(at)})
}

// at returns the sockets of these keys, as far as there are any.
func (b binds) at(keys []string) (list []*listenSocket) {
	for _, key := range keys {
		if socket := b[key]; socket != nil {
			list = append(list, socket)
		}
	}
	return list
}

func passedKey(name, index string) string { return "systemd:" + name + ":" + index }

func (s *sockets) socketConfig(l *config.Listener) *socketlistener.Config {
	return &socketlistener.Config{
		Options: socketOptions(l), Backlog: l.Socket.Backlog, Multipath: l.Socket.MPTCP,
		Control: func(network, _ string, c syscall.RawConn) (err error) {
			if !strings.HasPrefix(network, "tcp") {
				return nil
			}
			cause := c.Control(func(fd uintptr) { err = setOptions(l, int(fd)) })
			return cmp.Or(cause, err)
		},
	}
}

// socketOptions returns the options that a configuration names. In a configuration 0 means off.
func socketOptions(l *config.Listener) sockopt.Options {
	return sockopt.Options{KeepAlive: orOff(l.Socket.KeepAlive), UserTimeout: orOff(l.Socket.UserTimeout)}
}

func orOff(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// setOptions sets the options that package socket does not have.
func setOptions(l *config.Listener, fd int) error {
	if name := l.Socket.Congestion; name != "" {
		_ = sys.SetCongestion(fd, name) // on an error the socket keeps the system's, and logCongestion says so
	}
	if l.Socket.FastOpen {
		// The argument is how many connections without a finished handshake may wait.
		err := sys.SetsockoptInt(fd, sys.IPPROTO_TCP, sys.TCP_FASTOPEN, l.Socket.Backlog)
		if err != nil && err != syscall.ENOPROTOOPT {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	if !l.Transparent {
		return nil
	}
	// Without the option only connections from a NAT rule arrive, for which no capability is needed: logOpaque says so.
	err := sys.SetsockoptInt(fd, syscall.SOL_IP, sys.IP_TRANSPARENT, 1)
	if err == syscall.ENOPROTOOPT {
		err = sys.SetsockoptInt(fd, syscall.SOL_IPV6, sys.IPV6_TRANSPARENT, 1)
	}
	if err == syscall.EPERM {
		return nil
	}
	return os.NewSyscallError("setsockopt", err)
}

// adapt gives the connections that a socket accepts from now on the options of the
// configuration in force.
func (s *sockets) adapt(socket *listenSocket) {
	s.logUnchanged(socket, os.NewSyscallError("listen", sys.Listen(socket.fd, socket.cfg.Socket.Backlog)))
	if !socket.listener.TCP() {
		return
	}
	err := socketOptions(socket.cfg).Set(socket.fd)
	if err == nil {
		err = unsetOptions(socket.cfg, socket.fd)
	}
	if err == nil {
		err = setOptions(socket.cfg, socket.fd)
	}
	s.logUnchanged(socket, err)
	s.logOpaque(socket)
	s.adaptCongestion(socket)
	if protocol, err := sys.GetsockoptInt(socket.fd, sys.SOL_SOCKET, sys.SO_PROTOCOL); err == nil && socket.cfg.Socket.MPTCP == (protocol == sys.IPPROTO_TCP) {
		s.log.Warn("socket.mptcp is not applied: the socket was made by systemd, or the kernel has no Multipath TCP",
			"listener", socket.owner, "address", socket.listener.Addr(), "mptcp", !socket.cfg.Socket.MPTCP)
	}
}

func unsetOptions(l *config.Listener, fd int) error {
	for _, o := range []struct {
		level, name int
		wanted      bool
	}{{sys.IPPROTO_TCP, sys.TCP_FASTOPEN, l.Socket.FastOpen}, {syscall.SOL_IP, sys.IP_TRANSPARENT, l.Transparent}} {
		if set, err := sys.GetsockoptInt(fd, o.level, o.name); o.wanted || err != nil || set == 0 {
			continue
		}
		if err := sys.SetsockoptInt(fd, o.level, o.name, 0); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return nil
}

func (s *sockets) logUnchanged(socket *listenSocket, err error) {
	if err != nil {
		s.log.Warn("the options of a listening socket could not be changed", "address", socket.listener.Addr(), "error", err)
	}
}

// logOpaque logs that a transparent listener cannot accept connections from TPROXY.
func (s *sockets) logOpaque(socket *listenSocket) {
	if !socket.cfg.Transparent {
		return
	}
	set, err := sys.GetsockoptInt(socket.fd, syscall.SOL_IP, sys.IP_TRANSPARENT)
	if err != nil || set == 0 {
		s.log.Warn("IP_TRANSPARENT needs CAP_NET_ADMIN, which the process does not have: a transparent listener accepts connections from REDIRECT or DNAT, but not from TPROXY",
			"listener", socket.owner, "address", socket.listener.Addr())
	}
}

// Causes of the end of sessions when their socket is closed.
var (
	errListenerGone    = errors.New("its listener is gone")
	errListenerDrained = errors.New("its listener was drained")
	errListenerMoved   = errors.New("its listener has left the address")
)

// closedFor returns why a change closes a socket: what became of its listener.
func (c *change) closedFor(socket *listenSocket) error {
	switch l := c.listeners[socket.owner]; {
	case l == nil:
		return errListenerGone
	case l.drained:
		return errListenerDrained
	}
	return errListenerMoved
}

// closeSocket stops listening at an address, and accepts the clients in its queue. The sessions of the address may go on
// for a while (see endSessions), and are then ended with the cause.
func (s *sockets) closeSocket(key string, socket *listenSocket, cause error) {
	delete(s.binds, key)
	s.noteGivenUp(socket)
	s.unlink(socket)
	_ = socket.listener.StopAccepting() // best effort: the queue does not fill while it is emptied
	s.log.Info("stopped listening", "listener", socket.owner, "address", socket.listener.Addr())
	s.drainQueue(socket)
	s.endSessions(key, socket, true, cause)
}

// drainQueue lets the loops accept the clients in a socket's queue and then close the socket.
func (s *sockets) drainQueue(socket *listenSocket) {
	socket.listening.Close()
	socket.parting = true
}

// unlinkTime is how long a change, which holds the server's mu, waits for the file system of a unix socket.
const unlinkTime = time.Second / 5

// unlink removes the path of a unix socket: no client finds it any more.
func (s *sockets) unlink(socket *listenSocket) {
	if socket.listener.TCP() {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.logUnclosed(socket, socket.listener.Unlink())
	}()
	select {
	case <-done:
	case <-time.After(unlinkTime):
	}
}

func (s *sockets) logUnclosed(socket *listenSocket, err error) {
	if err != nil {
		s.log.Warn("a listener could not be closed", "address", socket.listener.Addr(), "error", err)
	}
}

func (socket *listenSocket) gone() bool {
	select {
	case <-socket.closed:
		return true
	default:
		return false
	}
}

// partingTime is how long a change waits for sockets that an earlier change has given up, while the
// loops empty their queues.
const partingTime = time.Second

// awaitClosed waits until the sockets that earlier changes have given up are closed, and reports whether there were
// any.
func (s *sockets) awaitClosed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, partingTime)
	defer cancel()
	any := false
	for _, socket := range s.removed.sockets {
		if !socket.parting {
			continue
		}
		any = true
		select {
		case <-socket.closed:
		case <-ctx.Done():
		}
	}
	return any
}

// An address that a change gives up can be in the way of an address that the change asks for:
// 127.0.0.1:80 is in the way of :80. Then the new socket is bound next to the old one, and listens
// once nothing else of the change can fail. At the swap the old socket is replaced. Its
// connections are still accepted while clients may have begun to connect to it; then it is closed
// like any removed socket.

// handshakeTime is how long connections are still accepted from a replaced socket: long enough
// for a handshake that lost two packets in a row (the kernel repeats after one second, then after
// two).
const handshakeTime = 5 * time.Second

// maxReplaced bounds the replaced sockets, however often addresses change.
const maxReplaced = 64

// listen listens on an address; beside are the sockets with the address, or a part of it,
// that this change takes out of service. If there are any, the new socket does not listen
// yet.
func (s *sockets) listen(ctx context.Context, c *change, l *config.Listener, at sockopt.Address) (ln *socketlistener.Listener, beside []*listenSocket, err error) {
	ln, err = socketlistener.Listen(ctx, at, s.socketConfig(l))
	if !errors.Is(err, syscall.EADDRINUSE) {
		return ln, nil, err
	}
	if s.closeReplaced(at); s.awaitClosed(ctx) {
		ln, err = socketlistener.Listen(ctx, at, s.socketConfig(l))
		if !errors.Is(err, syscall.EADDRINUSE) {
			return ln, nil, err
		}
	}
	if beside = s.overlappingSockets(c, at); len(beside) == 0 {
		return nil, nil, err
	}
	for _, socket := range beside {
		if err := socket.listener.SetReusePort(true); err != nil {
			return nil, nil, err
		}
		c.reusePort = append(c.reusePort, socket)
		c.undo = append(c.undo, func() { s.logUnchanged(socket, socket.listener.ClearReusePort()) })
	}
	ln, failed := socketlistener.Bind(ctx, at, s.socketConfig(l))
	if failed != nil {
		return nil, nil, failed
	}
	beside = slices.DeleteFunc(beside, func(socket *listenSocket) bool { return !socket.listener.Overlaps(ln) })
	if len(beside) == 0 { // it was another process, which has left by now
		return nil, nil, errors.Join(err, ln.Close())
	}
	return ln, beside, nil
}

// overlappingSockets returns the sockets that a change gives up and that may be in the way of an address. A socket
// that systemd passed is not among them: systemd keeps it open.
func (s *sockets) overlappingSockets(c *change, at sockopt.Address) (list []*listenSocket) {
	if c.kept == nil {
		c.kept = s.keeps(c.cfg)
	}
	for _, socket := range s.binds {
		if !c.kept[socket] && socket.samePort(at) && !socket.listener.Passed() {
			list = append(list, socket)
		}
	}
	return list
}

func (socket *listenSocket) samePort(at sockopt.Address) bool {
	return at.Network == "tcp" && socket.listener.TCP() && portOf(socket.listener.Addr()) == portOf(at.Name)
}

func (socket *listenSocket) overlaps(at sockopt.Address) bool {
	return socket.listener.TCP() && overlap("tcp", socket.listener.Addr(), at)
}

// overlap reports whether a socket named name has the address at or a part of it.
func overlap(network, name string, at sockopt.Address) bool {
	switch {
	case network != at.Network:
		return false
	case network != "tcp":
		return name == at.Name
	case portOf(name) != portOf(at.Name):
		return false
	}
	host, _, _ := net.SplitHostPort(at.Name)
	wanted, err := netip.ParseAddr(host)
	own, err2 := netip.ParseAddrPort(name)
	if err != nil || err2 != nil { // without a host, or with a name: any address of this machine
		return true
	}
	return wanted.IsUnspecified() || own.Addr().IsUnspecified() || wanted.Unmap() == own.Addr().Unmap()
}

func (s *sockets) keeps(cfg *config.Config) map[*listenSocket]bool {
	kept := make(map[*listenSocket]bool)
	for _, l := range cfg.Listeners {
		for _, at := range l.Bind {
			for _, socket := range s.binds.of(l, at) {
				if at.Systemd != "" || socket.stays(l) {
					kept[socket] = true
				}
			}
		}
	}
	return kept
}

// listen begins to listen at the sockets that are bound beside others. It is the last step that can fail, for lack of
// memory. Only if it fails can one of these sockets have clients already; they are refused.
func (c *change) listen() error {
	for _, successor := range c.successors {
		others := make([]*socketlistener.Listener, len(successor.overlapping))
		for i, socket := range successor.overlapping {
			others[i] = socket.listener
		}
		if err := successor.listener.Start(others...); err != nil {
			return err
		}
	}
	return nil
}

func (c *change) successorsOf(socket *listenSocket) (list []*listenSocket) {
	for _, successor := range c.successors {
		if slices.Contains(successor.overlapping, socket) {
			list = append(list, successor)
		}
	}
	return list
}

// replaceSocket replaces a socket at an address by others, and closes it once the clients that have begun to connect to it
// are accepted. Its sessions go to a replacement.
func (s *sockets) replaceSocket(key string, socket *listenSocket, successors []*listenSocket, cause error) {
	if s.binds[key] == socket {
		delete(s.binds, key)
	}
	s.noteGivenUp(socket)
	addresses := make([]string, len(successors))
	for i, successor := range successors {
		addresses[i] = successor.listener.Addr()
	}
	s.logUnchanged(socket, socket.listener.StopAccepting())
	s.log.Info("a listening socket was replaced", "listener", socket.owner, "address", socket.listener.Addr(), "now", addresses)
	s.transferSessions(key, socket, successors, cause)
	if others := s.removed.replaced(); len(others) >= maxReplaced {
		s.closeOne(others[0])
	}
	socket.replaced = true
	socket.closeTimer = s.at(handshakeTime, func() { s.closeOne(socket) })
}

// transferSessions gives the sessions of a socket, and the clients in its queue, to the socket that takes its place.
// Sockets of several listeners, or sockets of another listener with only a part of the addresses, do not get the
// clients in the queue: they keep the configuration in force when they began to connect. If several listeners take
// the place, only the socket's present listener gets the sessions; if it is not among them, the sessions drain.
func (s *sockets) transferSessions(key string, socket *listenSocket, successors []*listenSocket, cause error) {
	i := slices.IndexFunc(successors, func(successor *listenSocket) bool { return successor.owner == socket.owner })
	others := slices.ContainsFunc(successors, func(successor *listenSocket) bool { return successor.owner != successors[0].owner })
	if i < 0 && others {
		s.endSessions(key, socket, false, cause)
		return
	}
	successor := successors[max(i, 0)]
	successor.takeOver(socket.sockets())
	if !others && (i >= 0 || haveAll(successors, socket)) {
		socket.owner, socket.cfg, socket.service = successor.owner, successor.cfg, successor.service
		socket.state.Store(successor.state.Load())
		socket.listening.Replace(successor.service)
	}
}

// haveAll reports whether successors together have all addresses of a socket.
func haveAll(successors []*listenSocket, socket *listenSocket) bool {
	for _, own := range socket.own {
		if !slices.ContainsFunc(successors, func(o *listenSocket) bool { return slices.Contains(o.own, own) }) {
			return false
		}
	}
	return true
}

func (s *sockets) closeOne(socket *listenSocket) {
	if socket.replaced {
		socket.replaced = false
		s.cancelTimer(socket.closeTimer)
		s.drainQueue(socket)
	}
}

// closeReplaced closes replaced sockets that may be in the way of an address, because a second change came before their
// time was over.
func (s *sockets) closeReplaced(at sockopt.Address) {
	for _, socket := range s.removed.replaced() {
		if socket.samePort(at) {
			s.closeOne(socket)
		}
	}
}

// clearReusePort lets no other process bind the addresses of a change.
func (s *sockets) clearReusePort(c *change) {
	for _, socket := range c.reusePort {
		s.logUnchanged(socket, socket.listener.SetReusePort(false))
	}
	for _, successor := range c.successors {
		s.logUnchanged(successor, successor.listener.ClearReusePort())
	}
}

func (s *sockets) serveSocket(key string, socket *listenSocket) {
	if s.binds[key] == socket {
		if socket.adapts {
			s.adapt(socket)
		}
		socket.listening.Replace(socket.service)
		return
	}
	listening, err := s.group.Listen(worker.Listener{
		FD: socket.fd, TCP: socket.listener.TCP(), Local: localOf(socket), Service: socket.service, Of: socket, Shared: socket.listener.Passed(),
	})
	if err != nil { // the loops end
		s.logUnclosed(socket, socket.listener.Close())
		return
	}
	s.binds[key], socket.listening = socket, listening
	s.rejoin(key, socket)
	s.log.Info("listening", "listener", socket.owner, "address", socket.listener.Addr())
	s.logOpaque(socket)
	s.adaptCongestion(socket)
}

// localOf returns the address to which all clients of a socket have connected; invalid if
// there are several, as with TPROXY.
func localOf(socket *listenSocket) netip.AddrPort {
	if socket.cfg.Transparent {
		return netip.AddrPort{}
	}
	return socket.listener.Local()
}

// adaptCongestion logs if a listening socket has another congestion control than the
// configured one. If the configuration no longer names one, it sets the default of the
// system.
func (s *sockets) adaptCongestion(socket *listenSocket) {
	wanted, before := socket.cfg.Socket.Congestion, socket.congestion
	if socket.congestion = wanted; !socket.listener.TCP() {
		return
	}
	if wanted != "" {
		if used, err := socket.congestionNow(); err != nil {
			s.log.Warn("socket.congestion is not applied", "listener", socket.owner, "address", socket.listener.Addr(),
				"congestion", wanted, "used", used, "error", err)
		}
		return
	}
	if before == "" {
		return
	}
	usual, err := sys.DefaultCongestion()
	if err == nil {
		err = os.NewSyscallError("setsockopt TCP_CONGESTION", sys.SetCongestion(socket.fd, usual))
	}
	s.logUnchanged(socket, err)
}

// noteGivenUp notes socket as the last owner of its address. Sockets that were given up earlier and
// had a part of the address follow its state from now on.
func (s *sockets) noteGivenUp(socket *listenSocket) {
	socket.former.Store(true)
	s.removed.sweep()
	for _, o := range s.removed.sockets {
		if o == socket || o.deserted.Load() || !socket.hasPartOf(o) {
			continue
		}
		var later []*listenSocket
		if before := o.later.Load(); before != nil {
			later = slices.DeleteFunc(slices.Clone(*before), func(l *listenSocket) bool { return slices.Equal(l.own, socket.own) })
		}
		later = append(later, socket)
		o.later.Store(&later)
	}
	if !slices.Contains(s.removed.sockets, socket) {
		s.removed.sockets = append(s.removed.sockets, socket)
	}
}

// An overflowCount is how often the accept queue of a listening socket has overflowed. The socket's
// own counter also counts stray segments, which any host can send. The network namespace's counter
// does not, but it counts the overflows of all sockets. So the smaller of the two increases is
// counted.
type overflowCount struct {
	unknown bool // one of the counters could not be read at the last look
	total   int64
	drops   uint32 // the socket's counter at the last look; it wraps
	risen   uint32 // by how much it had risen since the look before
}

// A namespaceCount is the counter of overflows of the whole network namespace.
type namespaceCount struct {
	read  func() (uint64, error) // sys.ListenOverflows
	known bool                   // whether it could be read at the last look
	last  uint64                 // before the sockets' counters were read
}

// countOverflows looks at the accept queues of all listening sockets.
//
// It reads the namespace's counter before the sockets' counters and, if one of these has risen, once more after them. The
// time between the two readings belongs to this look and to the next one, so that no overflow is missed.
func (s *sockets) countOverflows() {
	ns := &s.overflow
	before, err := ns.read()
	risen := false
	for _, socket := range s.binds {
		if socket.listener.TCP() {
			o := &socket.overflows
			drops, err := sys.ListenDrops(socket.fd)
			if o.unknown = err != nil; !o.unknown {
				o.risen, o.drops = drops-o.drops, drops
			}
			risen = risen || o.risen > 0
		}
	}
	after := before
	if err == nil && risen {
		after, err = ns.read()
	}
	for _, socket := range s.binds {
		switch o := &socket.overflows; {
		case err != nil:
			o.unknown = true
		case ns.known && !o.unknown:
			o.total += int64(min(uint64(o.risen), after-ns.last))
		}
	}
	ns.known, ns.last = err == nil, before
}

// Why a socket has another congestion control than the configured one.
var (
	errOther  = errors.New("the kernel accepted it, but uses another congestion control")
	errFormer = errors.New("the kernel refused it when the socket was made, but would accept it now: reload")
)

// congestionNow returns the congestion control of a TCP listening socket, and the reason why it is
// not the configured one.
func (socket *listenSocket) congestionNow() (used string, err error) {
	wanted := socket.cfg.Socket.Congestion
	used, err = sys.Congestion(socket.fd)
	switch {
	case err != nil:
		return "", os.NewSyscallError("getsockopt TCP_CONGESTION", err)
	case used == wanted:
		return used, nil
	}
	tried, err := sockopt.TryCongestion(wanted)
	if err = notUsed(wanted, tried, err); err == nil {
		err = errFormer
	}
	return used, err
}

// notUsed returns why a new socket uses the congestion control used instead of wanted, or nil if they are the same. err is
// the error of setting wanted.
func notUsed(wanted, used string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("this kernel has no congestion control %s: %w", wanted, err)
	case errors.Is(err, syscall.EPERM):
		return fmt.Errorf("the congestion control %s needs CAP_NET_ADMIN: %w", wanted, err)
	case err == nil && used != wanted:
		return errOther
	}
	return err
}

// congestionStatus returns the congestion control of connections to the upstream's endpoints, found
// by setting it on a trial socket; nil if the file names none.
func (u *upstream) congestionStatus() *admin.Congestion {
	if u.congestion == nil {
		return nil
	}
	name := u.congestion.Name()
	used, err := sockopt.TryCongestion(name)
	return &admin.Congestion{Configured: name, Used: used, Error: textOf(notUsed(name, used, err)), Refused: u.congestion.Refused()}
}

func (um *upstreamManager) logCongestion(u *upstream) {
	if st := u.congestionStatus(); st != nil && st.Error != "" {
		um.log.Warn("socket.congestion is not applied", "upstream", u.cfg.Name, "congestion", st.Configured, "used", st.Used, "error", st.Error)
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
