// Package lane joins two TCP connections, and lets the session leave user space: once nothing of it
// has to be looked at, a BPF program at tc ingress translates its packets, and neither socket is
// visited any more. No byte of it costs this process anything then, and an idle session has one
// socket in place of two.
//
//	l, err := lane.Open(lane.Config{Devices: []string{"lo"}})
//	...
//	s, err := l.Join(client, server, func(r lane.Result) { log.Print(r.Bytes) }) // takes both connections
//	...
//	s.Wait()
//
// An event loop that relays by itself uses [Lane.Register] in place of Join.
//
// A session that is not eligible, or not yet, is relayed in user space by copying, so that Join
// works for every pair of connections. [Session.Refused] has the reason.
//
// It takes CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and a kernel with TCX and BTF: see [Probe]. The package is for
// Linux alone, and does not build for other systems. A portable program calls it in a file with //go:build linux,
// and joins by package relay on other systems, and where Open returns an [*Unavailable].
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

// A Config says where sessions may leave user space. Its zero value is not enough: it has no devices.
type Config struct {
	// Devices are all devices, in this process's network namespace, at which packets of sessions
	// arrive. The loopback and Ethernet devices can be used.
	Devices []string
	// Sessions is how many sessions there may be at once; 0 is 4096. Each takes about 904 bytes of the
	// kernel's memory, from Open on.
	Sessions int
	// Pin is an existing directory of a BPF file system (bpf(2)), for this lane alone. The programs and their maps
	// are pinned there, so that sessions in the lane go on when this process dies; the next process to open the
	// lane there adopts them, see [Lane.Sessions]. Pins of devices that are gone are replaced, and so is an
	// incomplete set, as after a death in the midst of pinning: its sessions end as without pins. "" pins nothing:
	// when the process dies, the kernel resets its sessions as soon as an endpoint sends something.
	Pin string
	// UserTimeout ends a session in the lane when an endpoint has not acknowledged bytes for that long though the other one has sent them again, as
	// TCP_USER_TIMEOUT does in user space: both connections are reset, and the error of the [Result] is a [TimedOut]. It
	// takes up to half a second more. A closed window ends no session. 0 ends no session. A [Bounded] owner has its own.
	UserTimeout time.Duration
	// KeepAlive is how long a session in the lane may be silent before both endpoints are probed, as TCP_KEEPIDLE is in
	// user space, up to a quarter of a second late. Unanswered probes are repeated every 10 s, or every UserTimeout if
	// that is less. They end the session after UserTimeout, or after nine probes if there is no UserTimeout. Answers to
	// probes do not count as bytes moved. 0 sends no probes, and less than a second is a second. A [Probed] owner has
	// its own.
	KeepAlive time.Duration
	// Restored is called when a session of [Lane.Join] comes back, with its new sockets to a and to b, before bytes
	// pass. They lack the options of the former sockets, except TCP's own options and SO_REUSEADDR. nil: they have
	// package net's options. It must not wait for the session: [Session.ComeBack] is an error in it, and
	// [Session.Wait] and [Lane.Close] would not return.
	Restored func(s *Session, a, b *net.TCPConn)
	// Linger is how long an ended session stays, for late packets. 0 is 10 s.
	Linger time.Duration
}

// A Lane is the programs at some devices, and the sessions that they carry. Its methods may be
// called concurrently. The zero Lane is closed: errors of its methods wrap net.ErrClosed.
type Lane struct {
	cfg     Config
	program *program.Program // owned
	links   []link.Link      // owned; of each device the guard first
	events  *ringbuf.Reader  // owned
	lock    int              // owned; the directory of pins, -1 if there is none

	pins sync.Mutex // of changes of the pins after Open

	running  sync.WaitGroup
	stop     chan struct{}
	finished chan struct{} // closed at the end of the first Close or Leave

	mu         sync.Mutex
	open       bool                      // from Open until Close or Leave
	relayed    map[*net.TCPConn]struct{} // the connections of Join that are in user space
	free       freeSlots
	sessions   []*Session            // by slot; nil where it is free
	owned      map[Owner]*ownership  // of owners that have sessions there
	unowned    *ownership            // of all other sessions
	staying    map[*Session]struct{} // sessions that never leave user space
	ends       map[*Session]func(Result)
	generation uint32
	batch      batch
	knock      chan struct{}
	parting    map[*Session]parting // sessions that have ended before their owners have called Leave
	unsent     []unsent             // resets that are to be tried again

	counts counts
}

// counts are the counts of Stats.
type counts struct {
	joined, departed, returned, ended, reset, failed, adopted, gaps atomic.Uint64
	refused, unrestored                                             [reasons]atomic.Uint64
}

// check returns an error for a configuration that no host could serve.
func (c *Config) check() error {
	switch {
	case len(c.Devices) == 0:
		return errors.New("no devices")
	case slices.Contains(c.Devices, ""):
		return errors.New("a device without a name")
	case len(slices.Compact(slices.Sorted(slices.Values(c.Devices)))) < len(c.Devices):
		return fmt.Errorf("a device is named twice: %q", c.Devices)
	case c.Sessions < 0 || c.Sessions > math.MaxInt32:
		return fmt.Errorf("%d sessions", c.Sessions)
	case c.UserTimeout < 0 || c.KeepAlive < 0 || c.Linger < 0:
		return fmt.Errorf("a negative time: user timeout %v, keepalive %v, linger %v", c.UserTimeout, c.KeepAlive, c.Linger)
	}
	return nil
}

// Open loads the programs and attaches them. The error is an [*Unavailable] if this host or this
// process lacks something, and wraps [ErrBusy] if a device has another lane, and os.ErrInvalid if the configuration cannot
// be one. The caller calls Close.
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
		open: true, relayed: make(map[*net.TCPConn]struct{}),
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

// ErrBusy is the error of a device that another lane is attached to: packets would have to pass both, in an order that
// depends on the direction. Pins have the same error if another process has them, or if their programs are attached in another network
// namespace that is in use.
var ErrBusy = errors.New("another lane is attached")

// usable returns the index of a device that packets can be translated at.
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

// Close ends every session: those in the lane are reset on both sides, and then the programs are
// detached. Nothing stays pinned. It waits for no owner to call [Session.Leave]: a later call resets both sides;
// meanwhile the sockets neither answer nor end. The end functions of Join and the methods of an [Owner] must not
// call it: it waits for them. A second Close waits for the first.
func (l *Lane) Close() error {
	if !l.finish((*Session).cut) {
		return nil
	}
	defer close(l.finished)
	return errors.Join(l.unpin(), l.detach())
}

// Leave is Close, except that sessions in a pinned lane go on, and the next process that opens the lane adopts them.
// Sessions in user space are reset. If no session goes on, nothing stays attached or pinned, as after Close.
func (l *Lane) Leave() error {
	if l.lock < 0 {
		return l.Close()
	}
	if !l.finish((*Session).resetHere) {
		return nil
	}
	defer close(l.finished)
	if l.goesOn() {
		l.pins.Lock() // a Repin that has begun before it ends first
		defer l.pins.Unlock()
		return l.detach()
	}
	return errors.Join(l.unpin(), l.detach())
}

// finish ends sessions and goroutines, and reports whether this is the first call. Other calls wait
// for the first.
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
	all := l.Sessions()
	var ending sync.WaitGroup
	for _, s := range all {
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
	for _, s := range all {
		s.letGo()
	}
	return true
}

// Sessions returns all sessions, including sessions adopted from another process, in no
// order.
func (l *Lane) Sessions() []*Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := max(len(l.sessions)-l.free.n, 0)
	all := make([]*Session, 0, taken+len(l.staying))
	for _, s := range l.sessions {
		if len(all) == taken { // slots are taken from the begin: the others are free
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

// detach closes what Open has opened, in the reverse order. Pinned programs stay attached.
func (l *Lane) detach() error {
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
	Joined   uint64 // sessions of Join and Register, also if Register has refused them as not eligible: these count in Refused, and not in Ended
	Left     uint64 // how often one has left user space
	Returned uint64 // how often one has come back
	Ended    uint64 // sessions that have ended, wherever
	Reset    uint64 // ended sessions that were reset
	Failed   uint64 // sockets that could not be closed in silence (the guard keeps their packets in), ports that are not held, and damaged records
	Adopted  uint64 // that were in the lane of a process before this one
	Lane     int    // sessions that are in the lane now
	Gaps     uint64 // how often Session.Shut has begun to make a gap
	// Unrestored are sessions that could not come back, and were reset, by reason.
	Unrestored map[Reason]uint64
	// Refused is how often a session could not leave, by reason: once if it never can,
	// and else once for each attempt. Device counts from the third attempt and a second after the session was joined, for nearly every session begins
	// with an attempt or two before the device is known.
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

// Size returns how many sessions the table has places for: [Config.Sessions], but an adopted table keeps its size.
// 0: the lane is a zero Lane.
func (l *Lane) Size() int {
	if l.program == nil {
		return 0
	}
	return int(l.program.Size())
}

// Memory returns how many bytes of the kernel's memory the table of sessions takes, for as long as the lane is open, however
// many there are; 0: the kernel does not report it. In this process each place takes 13 bytes more, and a Session 40, or 112 if it is one of Join.
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

// freeSlots are the slots that are free, a bit each.
type freeSlots struct {
	words []uint64
	n     int // how many there are
	at    int // the word of the slot that was taken or given back last
}

func newFreeSlots(size uint32) freeSlots { return freeSlots{words: make([]uint64, (int(size)+63)/64)} }

// give frees a slot.
func (f *freeSlots) give(slot uint32) {
	f.at = int(slot / 64)
	f.words[f.at] |= 1 << (slot % 64)
	f.n++
}

// next returns a free slot, and leaves it free; false: there is none. It returns the same slot
// until take or give.
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
