// Package lane joins two TCP connections into a session that can leave user space: a BPF program at tc ingress
// then translates the packets of each connection into packets of the other one. While a session is in the lane,
// its bytes cost this process nothing, and it holds one socket instead of two.
//
//	l, err := lane.Open(lane.Config{Devices: []string{"lo"}})
//	...
//	s, err := l.Join(client, server, func(r lane.Result) { log.Print(r.Bytes) }) // takes both connections
//	...
//	s.Wait()
//
// An event loop that relays by itself calls [Lane.Register] instead of Join.
//
// A session that cannot leave user space, or cannot leave yet, is relayed there by copying. So Join works for
// every pair of connections. [Session.Refused] returns the reason.
//
// The lane needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and a kernel with TCX and BTF: see [Probe]. The
// package builds only for Linux. A portable program uses it in a file with //go:build linux. On other systems,
// and where Open returns an [*Unavailable], it joins the connections with package relay.
//
// docs/lane.md has the guarantees, the figures and the limits.
package lane

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/penstock/penstock/lane/internal/program"
)

// A Config says at which devices sessions can leave user space, and how. Devices must be set.
type Config struct {
	// Devices are all devices, in this process's network namespace, at which packets of sessions arrive. They
	// must be Ethernet devices or the loopback.
	Devices []string
	// Sessions is how many sessions there can be at once; 0 is 4096. Open allocates about 904 bytes of kernel
	// memory for each.
	Sessions int
	// Pin is an existing directory of a BPF file system (bpf(2)) that no other lane uses. Open pins the
	// programs and their maps there, so that sessions in the lane go on when this process dies. The next
	// process that opens a lane with this directory adopts them, see [Lane.Sessions]. Open replaces pins of
	// devices that are gone. It also replaces an incomplete set of pins, which a process leaves if it dies
	// while it pins; the sessions of that set end. If Pin is "", nothing is pinned: when the process dies, the
	// kernel resets each session as soon as an endpoint sends something.
	Pin string
	// UserTimeout ends a session in the lane when an endpoint has not acknowledged bytes for that long although
	// the other endpoint has sent them again, like TCP_USER_TIMEOUT in user space. Both connections are reset,
	// up to half a second late, and the error of the [Result] is a [TimedOut]. A closed window ends no session.
	// 0 ends no session. A [Bounded] owner sets its own user timeout.
	UserTimeout time.Duration
	// KeepAlive is how long a session in the lane can be silent before both endpoints are probed, like
	// TCP_KEEPIDLE in user space. The first probe is up to a quarter of a second late. Unanswered probes are
	// repeated every 10 s, or every UserTimeout if that is less. They end the session after UserTimeout, or
	// after nine probes if UserTimeout is 0. Answers to probes do not count as bytes moved. 0 sends no probes,
	// and less than a second counts as a second. A [Probed] owner sets its own keepalive time.
	KeepAlive time.Duration
	// Restored is called when a session of [Lane.Join] comes back, before bytes pass, with the session's new
	// sockets to a and to b. They have TCP's own options and SO_REUSEADDR of the former sockets, and none of
	// the other options. If Restored is nil, they keep the options that package net sets. Restored must not
	// wait for the session: [Session.ComeBack] returns an error in it, and [Session.Wait] and [Lane.Close]
	// would not return.
	Restored func(s *Session, a, b *net.TCPConn)
	// Linger is how long an ended session keeps its place for late packets. 0 is 10 s.
	Linger time.Duration
}

// A Lane consists of the BPF programs at some devices, and of the sessions that they carry. Its methods may be
// called concurrently. The zero Lane is closed: its methods return errors that wrap net.ErrClosed.
type Lane struct {
	cfg     Config
	program *program.Program // owned
	links   []link.Link      // owned; for each device first the guard
	events  *ringbuf.Reader  // owned
	lock    int              // owned; the locked directory of pins, -1 if there is none

	pins sync.Mutex // held while pins are changed after Open

	running  sync.WaitGroup
	stop     chan struct{}
	finished chan struct{} // closed at the end of the first Close or Leave

	mu         sync.Mutex
	open       bool                      // from Open until Close or Leave
	opened     int64                     // when
	relayed    map[*net.TCPConn]struct{} // the connections of Join that user space relays
	free       freeSlots
	sessions   []*Session            // by slot; nil if the slot is free
	owned      map[Owner]*ownership  // of the owners that have sessions with a slot
	unowned    *ownership            // of all other sessions
	staying    map[*Session]struct{} // sessions that never leave user space
	ends       map[*Session]func(Result)
	generation uint32
	batch      batch
	knock      chan struct{}
	parting    map[*Session]parting // of sessions that ended before their owners called Leave
	unsent     []unsent             // resets to be tried again

	counts counts
}

// counts are the counts of Stats.
type counts struct {
	joined, departed, returned, ended, reset, failed, adopted, gaps atomic.Uint64
	refused, unrestored                                             [reasons]atomic.Uint64
}

// check returns an error if no host can serve this configuration.
func (c *Config) check() error {
	switch {
	case len(c.Devices) == 0:
		return errors.New("no Devices: name at least one")
	case slices.Contains(c.Devices, ""):
		return errors.New("an empty name in Devices")
	case len(slices.Compact(slices.Sorted(slices.Values(c.Devices)))) < len(c.Devices):
		return fmt.Errorf("a device twice in Devices: %q", c.Devices)
	case c.Sessions < 0 || c.Sessions > math.MaxInt32:
		return fmt.Errorf("Sessions is %d: use 1 or more, or 0 for 4096", c.Sessions)
	case c.UserTimeout < 0 || c.KeepAlive < 0 || c.Linger < 0:
		return fmt.Errorf("UserTimeout is %v, KeepAlive %v and Linger %v: use 0 or more", c.UserTimeout, c.KeepAlive, c.Linger)
	}
	return nil
}

// Open loads the programs and attaches them to the devices. The error is an [*Unavailable] if this host or this
// process lacks something that the lane needs. It wraps [ErrBusy] if a device has another lane, and
// os.ErrInvalid if the configuration is invalid. The caller must call Close or Leave.
func Open(cfg Config) (*Lane, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("lane: %w: %w", err, os.ErrInvalid)
	}
	if cfg.Sessions == 0 {
		cfg.Sessions = 4096
	}
	if cfg.Linger == 0 {
		cfg.Linger = 10 * time.Second
	}
	lock, err := lockPin(cfg.Pin)
	if err != nil {
		return nil, err
	}
	p, err := load(uint32(cfg.Sessions), cfg.Pin)
	if err != nil {
		return nil, errors.Join(err, unlock(lock))
	}
	l := &Lane{
		open: true, opened: now(), relayed: make(map[*net.TCPConn]struct{}),
		cfg: cfg, program: p, lock: lock, sessions: make([]*Session, p.Size()), ends: make(map[*Session]func(Result)), staying: make(map[*Session]struct{}),
		stop: make(chan struct{}), finished: make(chan struct{}), knock: make(chan struct{}, 1), parting: make(map[*Session]parting), owned: make(map[Owner]*ownership),
	}
	l.unowned, l.free = &ownership{lane: l}, newFreeSlots(p.Size())
	l.adopt()
	if err := l.begin(cfg.Devices); err != nil {
		return nil, errors.Join(err, l.detach())
	}
	return l, nil
}

// begin attaches to the devices and starts the goroutines.
func (l *Lane) begin(devices []string) (err error) {
	if l.events, err = l.program.Events(); err != nil {
		return fmt.Errorf("lane: events: %w", err)
	}
	for _, name := range devices {
		device, err := l.usable(name)
		if err != nil {
			return err
		}
		links, err := l.program.Attach(device)
		if err != nil {
			return fmt.Errorf("lane: device %s: %w", name, err)
		}
		l.links = append(l.links, links...)
	}
	l.running.Go(l.follow)
	l.running.Go(l.sweep)
	l.running.Go(l.wait)
	return nil
}

// ErrBusy means that another lane is attached to a device: packets would have to pass both lanes, in an order
// that depends on the direction. For a directory of pins, ErrBusy means that another process has it, or that
// the pinned programs are attached in another network namespace that is in use.
var ErrBusy = errors.New("another lane is attached")

// usable returns the index of a device, or an error if packets cannot be translated at the device.
func (l *Lane) usable(name string) (int, error) {
	d, err := net.InterfaceByName(name)
	if err != nil {
		return 0, fmt.Errorf("lane: device %s: %w", name, err)
	}
	if d.Flags&net.FlagLoopback == 0 && len(d.HardwareAddr) != 6 {
		return 0, fmt.Errorf("lane: device %s: neither Ethernet nor the loopback", name)
	}
	if l.program.IsPinned(d.Index) {
		return d.Index, nil // ours
	}
	attached, err := link.QueryPrograms(link.QueryOptions{Target: d.Index, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return 0, fmt.Errorf("lane: device %s: programs: %w", name, err)
	}
	for _, a := range attached.Programs {
		p, err := ebpf.NewProgramFromID(a.ID)
		if err != nil {
			continue // gone meanwhile
		}
		info, err := p.Info()
		_ = p.Close()
		if err == nil && strings.HasPrefix(info.Name, program.Name) {
			return 0, fmt.Errorf("lane: device %s: %w", name, busy(holder(a.ID)))
		}
	}
	return d.Index, nil
}

// Close ends every session, detaches the programs and removes the pins. Sessions in the lane are reset on both
// sides. Close does not wait until an owner calls [Session.Leave]: that call then resets both sides, and until
// then the sockets neither answer nor end. The end functions of Join and the methods of an [Owner] must not
// call Close, because Close waits for them. A second Close waits for the first.
func (l *Lane) Close() error {
	if !l.finish((*Session).cut) {
		return nil
	}
	defer close(l.finished)
	return errors.Join(l.unpin(), l.detach())
}

// Leave is like Close, but sessions in a pinned lane go on, and the next process that opens the lane adopts
// them. Sessions in user space are reset. If no session goes on, Leave detaches and unpins everything, like
// Close.
func (l *Lane) Leave() error {
	if l.lock < 0 {
		return l.Close()
	}
	if !l.finish((*Session).resetHere) {
		return nil
	}
	defer close(l.finished)
	if l.goesOn() {
		l.pins.Lock() // a Repin that has begun before must end first
		defer l.pins.Unlock()
		return l.detach()
	}
	return errors.Join(l.unpin(), l.detach())
}

// finish ends all sessions and goroutines, and reports whether this call is the first one. Other calls wait for
// the first.
func (l *Lane) finish(end func(*Session)) bool {
	l.mu.Lock()
	first := l.open
	l.open = false
	l.mu.Unlock()
	if !first {
		if l.finished != nil { // a zero Lane was never open
			<-l.finished
		}
		return false
	}
	var ending sync.WaitGroup
	for _, s := range l.Sessions() {
		ending.Go(func() {
			end(s)
			s.Wait()
		})
	}
	ending.Wait()
	close(l.stop)
	_ = l.events.Close()
	l.running.Wait()
	l.sendAgain()
	return true
}

// Sessions returns all sessions, including sessions adopted from another process, in no particular order.
func (l *Lane) Sessions() []*Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := max(len(l.sessions)-l.free.n, 0)
	all := make([]*Session, 0, taken+len(l.staying))
	for _, s := range l.sessions {
		if len(all) == taken { // all other slots are free
			break
		}
		if s != nil {
			all = append(all, s)
		}
	}
	for s := range l.staying {
		all = append(all, s)
	}
	return all
}

// detach closes everything that Open has opened, in reverse order. Pinned programs stay attached.
func (l *Lane) detach() error {
	for _, s := range l.Sessions() { // adopted ones too
		s.letGo()
	}
	var errs []error
	for i := len(l.links) - 1; i >= 0; i-- {
		errs = append(errs, l.links[i].Close())
	}
	if l.events != nil {
		_ = l.events.Close()
	}
	return errors.Join(append(errs, l.program.Close(), unlock(l.lock))...)
}

// Stats are counts since Open.
type Stats struct {
	Joined   uint64 // sessions of Join and Register; a session that Register refuses as not eligible counts here and in Refused, not in Ended
	Left     uint64 // how often a session has left user space
	Returned uint64 // how often a session has come back
	Ended    uint64 // sessions that have ended, in user space or in the lane
	Reset    uint64 // ended sessions that were reset
	Failed   uint64 // sockets that could not be closed silently (the guard drops their packets), ports that are not held, and damaged records
	Adopted  uint64 // sessions that were adopted from the lane of an earlier process
	Lane     int    // sessions that are in the lane now
	Gaps     uint64 // how often Session.Shut has begun to make a gap
	// Unrestored counts the sessions that could not come back and were reset, by reason.
	Unrestored map[Reason]uint64
	// Refused counts how often a session could not leave, by reason. A reason that never changes counts once
	// for its session, and every other reason counts once for each attempt. Device counts only from the third
	// attempt on and once the session is a second old: nearly every session begins with one or two attempts
	// before the device is known.
	Refused map[Reason]uint64
}

// Stats returns the counts.
func (l *Lane) Stats() Stats {
	st := Stats{
		Joined: l.counts.joined.Load(), Left: l.counts.departed.Load(), Returned: l.counts.returned.Load(), Ended: l.counts.ended.Load(),
		Reset: l.counts.reset.Load(), Failed: l.counts.failed.Load(), Adopted: l.counts.adopted.Load(), Gaps: l.counts.gaps.Load(),
		Unrestored: byReason(&l.counts.unrestored), Refused: byReason(&l.counts.refused),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sessions {
		if s != nil && s.left() {
			st.Lane++
		}
	}
	return st
}

// Size returns the number of places in the table of sessions. It is [Config.Sessions], except that an adopted
// table keeps its size. It is 0 for a zero Lane.
func (l *Lane) Size() int {
	if l.program == nil {
		return 0
	}
	return int(l.program.Size())
}

// Memory returns how many bytes of kernel memory the table of sessions takes. They are allocated by Open and do
// not depend on the number of sessions. 0 means that the kernel does not report it. The process itself
// uses 13 bytes for each place, and 40 for a Session, or 112 if Join made it.
func (l *Lane) Memory() uint64 {
	if l.program == nil {
		return 0
	}
	return l.program.Memory()
}

// byReason returns the counts that are not 0.
func byReason(counts *[reasons]atomic.Uint64) map[Reason]uint64 {
	m := make(map[Reason]uint64)
	for i := range counts {
		if n := counts[i].Load(); n > 0 {
			m[Reason(i)] = n
		}
	}
	return m
}

// freeSlots is the set of free slots, with one bit for each slot.
type freeSlots struct {
	words []uint64
	n     int // how many slots are free
	at    int // index of the word that was used last
}

func newFreeSlots(size uint32) freeSlots { return freeSlots{words: make([]uint64, (int(size)+63)/64)} }

// give frees a slot.
func (f *freeSlots) give(slot uint32) {
	f.at = int(slot / 64)
	f.words[f.at] |= 1 << (slot % 64)
	f.n++
}

// next returns a free slot, or false if there is none. The slot stays free: next returns it again until take or
// give is called.
func (f *freeSlots) next() (slot uint32, ok bool) {
	if f.n == 0 {
		return 0, false
	}
	for f.words[f.at] == 0 {
		f.at = (f.at + 1) % len(f.words)
	}
	return uint32(f.at*64 + bits.TrailingZeros64(f.words[f.at])), true
}

// take takes a free slot.
func (f *freeSlots) take(slot uint32) {
	f.words[slot/64] &^= 1 << (slot % 64)
	f.n--
}
