package kerneltrace

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// A Kind is a kind of event. Its numbers are the same as in enum event in bpf/trace.c.
type Kind int

// The kinds.
const (
	Retransmit       Kind = 1 + iota // a segment was sent again
	RetransmitSynAck                 // the answer to a client's SYN was sent again
	ResetSent
	ResetReceived
	ConnectFailed
	Drop        // a packet was dropped
	BufferLimit // there was no memory for a packet: tcp_mem, or the limit of a cgroup
	DeviceStall // a device has completed no packet for a while
	kinds
)

var kindNames = [kinds]string{"", "retransmit", "retransmit-synack", "reset-sent", "reset-received", "connect-failed", "drop", "buffer-limit", "device-stall"}

// String returns the kind's name.
func (k Kind) String() string { return kindNames[k] }

// MarshalText implements [encoding.TextMarshaler].
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *Kind) UnmarshalText(text []byte) error {
	i := slices.Index(kindNames[1:], string(text))
	if i < 0 {
		return fmt.Errorf("penstock: kerneltrace: %q is not a kind of event", text)
	}
	*k = Kind(i + 1)
	return nil
}

// A Side says how a process got a connection.
type Side int

// The sides.
const (
	Unknown   Side = iota
	Accepted       // the process listened
	Connected      // the process connected
)

// String returns the side's name.
func (s Side) String() string { return [...]string{"unknown", "accepted", "connected"}[s] }

// MarshalText implements [encoding.TextMarshaler].
func (s Side) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// An Event says how often one thing has happened to one connection.
type Event struct {
	Kind          Kind
	Side          Side
	Local, Remote netip.AddrPort // not valid for DeviceStall
	Incoming      bool           // for packets
	// Reason is the kernel's reason for a drop or a sent reset, in lower case, or the state of congestion control at
	// a retransmission, or "".
	Reason      string
	Count       uint64
	First, Last time.Duration // since the machine was booted (CLOCK_MONOTONIC)
}

// A Period is something that takes time. Its numbers are the same as in enum duration in bpf/trace.c.
type Period int

// The periods.
const (
	Connect        Period = 1 + iota // from the call of connect until the connection is established
	RetransmitWait                   // until a segment was sent again
	DeviceQueue                      // time in the queue of a network device
)

// A Duration holds how long one period took at one place.
type Duration struct {
	Period Period
	Side   Side
	Place  netip.AddrPort // the listener's address for accepted connections, the endpoint's for connected ones
	Device int            // index of the network device; 0: none
	Histogram
}

// A Thread says how long a thread waited for a CPU while it could run.
type Thread struct {
	PID, TID int
	Histogram
}

// A Reading is everything that was counted.
type Reading struct {
	Events    []Event
	Durations []Duration
	Threads   []Thread
	// Unmatched are events of connections in the same network namespace that are not known to belong to the traced
	// processes.
	Unmatched map[Kind]uint64
	// Lost counts events, durations and waits of threads that did not fit into the maps.
	Lost uint64
}

// Read reads everything counted since Open.
func (t *Tracer) Read() (*Reading, error) {
	r := &Reading{Unmatched: make(map[Kind]uint64)}
	for _, read := range []func(*Reading) error{t.readEvents, t.readDurations, t.readThreads, t.readCounts} {
		if err := read(r); err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
	}
	return r, nil
}

// each calls do for each entry of a map until do returns false.
func each[K, V any](m *ebpf.Map, do func(*K, *V)) error {
	var k K
	var v V
	entries := m.Iterate()
	for entries.Next(&k, &v) {
		do(&k, &v)
	}
	return entries.Err()
}

func (t *Tracer) readEvents(r *Reading) error {
	return each(t.maps.Maps["events"], func(k *traceEventKey, v *traceTally) {
		e := Event{Kind: Kind(k.Event), Incoming: k.Direction == 1, Count: v.Count, First: time.Duration(v.First), Last: time.Duration(v.Last)}
		if e.Kind <= 0 || e.Kind >= kinds {
			return
		}
		e.Reason = t.reasons.name(e.Kind, k.Detail)
		if e.Kind != DeviceStall {
			e.Local = netip.AddrPortFrom(addressOf(k.Flow.Local.Word), k.Flow.LocalPort)
			e.Remote = netip.AddrPortFrom(addressOf(k.Flow.Remote.Word), k.Flow.RemotePort)
			e.Side = t.sideOf(&k.Flow)
		}
		r.Events = append(r.Events, e)
	})
}

// sideOf returns the side of a connection that the programs have counted as traced.
func (t *Tracer) sideOf(f *traceFlow) Side {
	var o traceOwnership
	if t.maps.Maps["owners"].Lookup(f, &o) == nil {
		return Side(o.Side)
	}
	s := Socket{Local: netip.AddrPortFrom(addressOf(f.Local.Word), f.LocalPort), Netns: f.Netns}
	var one uint32
	if slices.ContainsFunc(s.accepting(), func(p tracePlace) bool { return t.maps.Maps["listening"].Lookup(p, &one) == nil }) {
		return Accepted
	}
	return Unknown
}

func (t *Tracer) readDurations(r *Reading) error {
	return each(t.maps.Maps["durations"], func(k *traceDurationKey, v *traceHistogram) {
		r.Durations = append(r.Durations, Duration{
			Period: Period(k.Duration), Side: Side(k.Side), Device: int(k.Device),
			Place:     netip.AddrPortFrom(addressOf(k.Place.Address.Word), uint16(k.Place.Port)),
			Histogram: histogramOf(v),
		})
	})
}

func (t *Tracer) readThreads(r *Reading) error {
	return each(t.maps.Maps["threads"], func(tid *uint32, v *traceThread) {
		if v.Wait.Count > 0 {
			r.Threads = append(r.Threads, Thread{PID: int(v.Tgid), TID: int(*tid), Histogram: histogramOf(&v.Wait)})
		}
	})
}

func (t *Tracer) readCounts(r *Reading) error {
	err := each(t.maps.Maps["unmatched"], func(i *uint32, n *uint64) {
		if *n > 0 && Kind(*i) < kinds {
			r.Unmatched[Kind(*i)] = *n
		}
	})
	return errors.Join(err, each(t.maps.Maps["lost"], func(_ *uint32, n *uint64) { r.Lost += *n }))
}

// The programs for the queues of devices are attached for samplePart of each samplePeriod. They see every packet of
// the machine, even packets of the loopback device, which has no queue.
const (
	samplePart   = 100 * time.Millisecond
	samplePeriod = 500 * time.Millisecond
)

// Wait returns when ctx ends. Until then it attaches and detaches the programs for the queues of devices in turn,
// which cuts their cost to a fifth. Before and after Wait they are attached.
func (t *Tracer) Wait(ctx context.Context) error {
	pause := func(d time.Duration) bool {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for pause(samplePart) {
		err := t.detachSampled()
		pause(samplePeriod - samplePart)
		if err = errors.Join(err, t.attachSampled()); err != nil {
			return err
		}
	}
	return nil
}

// detachSampled detaches the programs in reverse order, and forgets the packets that are in a queue: another packet
// may have the same address later, and must not count as the forgotten one.
func (t *Tracer) detachSampled() error {
	var errs []error
	for _, l := range slices.Backward(t.sampledLinks) {
		errs = append(errs, l.Close())
	}
	t.sampledLinks = nil
	var packets []uint64
	errs = append(errs, each(t.maps.Maps["queued"], func(k, _ *uint64) { packets = append(packets, *k) }))
	for _, k := range packets {
		_ = t.maps.Maps["queued"].Delete(k) // it may have left the map already
	}
	return errors.Join(errs...)
}

func (t *Tracer) attachSampled() error {
	for _, p := range t.sampled {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return fmt.Errorf("trace: attaching again: %w", err)
		}
		t.sampledLinks = append(t.sampledLinks, l)
	}
	return nil
}

// A Histogram counts durations in buckets, with four buckets from each power of two to the next. So a quantile is at
// most a quarter too high.
type Histogram struct {
	Count uint64
	Sum   time.Duration
	Max   time.Duration

	buckets [128]uint32
}

func histogramOf(h *traceHistogram) Histogram {
	return Histogram{Count: h.Count, Sum: time.Duration(h.Sum), Max: time.Duration(h.Max), buckets: h.Bucket}
}

// Add adds the durations of another histogram.
func (h *Histogram) Add(o *Histogram) {
	h.Count, h.Sum, h.Max = h.Count+o.Count, h.Sum+o.Sum, max(h.Max, o.Max)
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
}

// Quantile returns the duration that a share q of all durations, from 0 to 1, does not exceed, or 0 if there are
// none.
func (h *Histogram) Quantile(q float64) time.Duration {
	var all, below uint64
	for _, n := range h.buckets {
		all += uint64(n)
	}
	for i, n := range h.buckets {
		below += uint64(n)
		if n > 0 && float64(below) >= q*float64(all) {
			return min(bucketEnd(i), h.Max)
		}
	}
	return 0
}

// bucketEnd returns the first duration beyond a bucket, see record in bpf/trace.c. The last bucket has no end.
func bucketEnd(i int) time.Duration {
	if i == 127 {
		return 1<<63 - 1
	}
	return time.Duration(4+(i+1)%4) << ((i+1)/4 + 5)
}

// reasons are the names in the kernel's enumerations. A map is nil if the kernel lacks the enumeration.
type reasons struct {
	drop, reset map[uint64]string
}

// congestion are the states of enum tcp_ca_state in include/uapi/linux/tcp.h: the causes of retransmissions.
var congestion = []string{"probe", "disorder", "cwr", "recovery", "timeout"}

// limits are the kinds of sock_exceed_buf_limit: SK_MEM_SEND and SK_MEM_RECV in include/net/sock.h.
var limits = []string{"send", "receive"}

// loadReasons reads the names. If the kernel lacks an enumeration, numbers are shown instead of names.
func loadReasons() (r reasons) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return r
	}
	r.drop = enumNames(spec, "skb_drop_reason", "SKB_DROP_REASON_", "SKB_")
	r.reset = enumNames(spec, "sk_rst_reason", "SK_RST_REASON_")
	return r
}

// enumNames returns the names of an enumeration in lower case, without the first prefix that matches.
func enumNames(spec *btf.Spec, name string, prefixes ...string) map[uint64]string {
	var enum *btf.Enum
	if spec.TypeByName(name, &enum) != nil {
		return nil
	}
	names := make(map[uint64]string, len(enum.Values))
	for _, v := range enum.Values {
		text := v.Name
		for _, prefix := range prefixes {
			if short, ok := strings.CutPrefix(text, prefix); ok {
				text = short
				break
			}
		}
		names[v.Value] = strings.ToLower(text)
	}
	return names
}

// dropNumber returns the number of a drop reason, or 0 if the kernel does not have it.
func (r *reasons) dropNumber(name string) uint32 {
	for n, of := range r.drop {
		if of == name {
			return uint32(n)
		}
	}
	return 0
}

func (r *reasons) name(k Kind, detail uint32) string {
	switch k {
	case Drop:
		return named(r.drop, detail)
	case ResetSent:
		return named(r.reset, detail)
	case Retransmit:
		return listed(congestion, detail)
	case BufferLimit:
		return listed(limits, detail)
	}
	return ""
}

func named(names map[uint64]string, v uint32) string {
	if name, ok := names[uint64(v)]; ok {
		return name
	}
	return fmt.Sprintf("reason %d", v)
}

func listed(names []string, v uint32) string {
	if int64(v) < int64(len(names)) {
		return names[v]
	}
	return fmt.Sprintf("kind %d", v)
}

// A Socket is a TCP socket of a process.
type Socket struct {
	PID           int
	Local, Remote netip.AddrPort
	Listens       bool
	Netns         uint32 // inode number of its network namespace
	// Shared means that another process, which is not traced, listens at the same address (SO_REUSEPORT).
	Shared bool
}

// stateListen is TCP_LISTEN of include/net/tcp_states.h.
const stateListen = 0x0a

// A namespace holds the sockets of the processes that share a network namespace.
type namespace struct {
	reader int            // a process in the namespace, for its tables in /proc
	owners map[uint64]int // process by the inode number of its socket
}

// Sockets returns the TCP sockets of some processes. notes has a line for each process whose sockets are not known,
// for example because it belongs to another user (proc_pid_fd(5)).
func Sockets(pids []int) (list []Socket, notes []string) {
	all := make(map[uint32]*namespace)
	for _, pid := range pids {
		netns, err := netnsOf(pid)
		if err == nil {
			if all[netns] == nil {
				all[netns] = &namespace{reader: pid, owners: make(map[uint64]int)}
			}
			err = socketInodes(pid, all[netns].owners)
		}
		if err != nil {
			notes = append(notes, fmt.Sprintf("the sockets of process %d are unknown: %v", pid, err))
		}
	}
	for netns, n := range all {
		sockets, err := n.sockets(netns)
		if err != nil {
			notes = append(notes, fmt.Sprintf("the sockets in the network namespace of process %d are unknown: %v", n.reader, err))
		}
		list = append(list, sockets...)
	}
	return list, append(notes, sharedNote(list)...)
}

func (n *namespace) sockets(netns uint32) (list []Socket, err error) {
	others := make(map[netip.AddrPort]bool)
	for _, name := range []string{"tcp", "tcp6"} {
		rows, err := readTable(n.reader, name)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			pid, ours := n.owners[row.inode]
			row.PID, row.Netns = pid, netns
			switch {
			case ours:
				list = append(list, row.Socket)
			case row.Listens:
				others[row.Local] = true
			}
		}
	}
	for i := range list {
		list[i].Shared = list[i].Listens && others[list[i].Local]
	}
	return list, nil
}

func netnsOf(pid int) (uint32, error) {
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(name, "net:["), "]"), 10, 32)
	return uint32(n), err
}

func socketInodes(pid int, owners map[uint64]int) error {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			to, err := os.Readlink(filepath.Join(dir, name))
			if err != nil {
				continue // closed in the meantime
			}
			if n, ok := strings.CutPrefix(to, "socket:["); ok {
				if inode, err := strconv.ParseUint(strings.TrimSuffix(n, "]"), 10, 64); err == nil {
					owners[inode] = pid
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// A tableRow is a row of /proc/PID/net/tcp.
type tableRow struct {
	Socket
	inode uint64
}

// readTable reads the sockets in the network namespace of a process. A kernel without IPv6 has no table for it.
func readTable(pid int, name string) (rows []tableRow, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, name))
	if errors.Is(err, os.ErrNotExist) && name == "tcp6" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if row, ok := parseRow(lines.Text()); ok {
			rows = append(rows, row)
		}
	}
	return rows, lines.Err()
}

// parseRow parses a row. It returns false for the head of the table.
func parseRow(line string) (row tableRow, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 10 || !strings.HasSuffix(fields[0], ":") {
		return row, false
	}
	local, err := parseTableAddress(fields[1])
	remote, err2 := parseTableAddress(fields[2])
	state, err3 := strconv.ParseUint(fields[3], 16, 8)
	inode, err4 := strconv.ParseUint(fields[9], 10, 64)
	if errors.Join(err, err2, err3, err4) != nil {
		return row, false
	}
	row.Local, row.Remote = unmapped(local), unmapped(remote)
	if state == stateListen {
		row.Listens, row.Local = true, local
	}
	row.inode = inode
	return row, true
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// parseTableAddress parses an address in the form of the tables: words of four bytes in the machine's byte order, in
// hexadecimal.
func parseTableAddress(text string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(host)
	p, err2 := strconv.ParseUint(port, 16, 16)
	if err = errors.Join(err, err2); err != nil {
		return netip.AddrPort{}, err
	}
	for i := 0; i+4 <= len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("address %q", text)
	}
	return netip.AddrPortFrom(a, uint16(p)), nil
}

// words returns an address in the form of the programs: 16 bytes, with IPv4 mapped into IPv6.
func words(a netip.Addr) (w [4]uint32) {
	b := a.As16()
	for i := range w {
		w[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return w
}

// addressOf is the reverse of words.
func addressOf(w [4]uint32) netip.Addr {
	var b [16]byte
	for i, v := range w {
		binary.NativeEndian.PutUint32(b[4*i:], v)
	}
	return netip.AddrFrom16(b).Unmap()
}

func (s *Socket) place(a netip.Addr) (p tracePlace) {
	p.Address.Word = words(a)
	p.Port, p.Netns = uint32(s.Local.Port()), s.Netns
	return p
}

var (
	anyV4 = netip.AddrFrom4([4]byte{})
	anyV6 = netip.IPv6Unspecified()
)

// places returns the places that a socket listens at. A socket for all IPv6 addresses takes IPv4 clients too, unless
// IPV6_V6ONLY is set, which the tables do not show.
func (s *Socket) places() (list []tracePlace) {
	if !s.Listens {
		return nil
	}
	list = append(list, s.place(s.Local.Addr()))
	if s.Local.Addr() == anyV6 {
		list = append(list, s.place(anyV4))
	}
	return list
}

// accepting returns the places of the listeners that may have accepted a socket.
func (s *Socket) accepting() []tracePlace {
	wildcard := anyV6
	if s.Local.Addr().Is4() {
		wildcard = anyV4
	}
	return []tracePlace{s.place(s.Local.Addr()), s.place(wildcard)}
}

func (s *Socket) flow() (f traceFlow) {
	f.Local.Word, f.Remote.Word = words(s.Local.Addr()), words(s.Remote.Addr())
	f.LocalPort, f.RemotePort, f.Netns = s.Local.Port(), s.Remote.Port(), s.Netns
	return f
}

func sharedNote(sockets []Socket) []string {
	var shared []string
	for _, s := range sockets {
		if text := s.Local.String(); s.Shared && !slices.Contains(shared, text) {
			shared = append(shared, text)
		}
	}
	if len(shared) == 0 {
		return nil
	}
	slices.Sort(shared)
	return []string{"other processes listen at " + strings.Join(shared, ", ") + " too: events of their clients are counted as events of the traced processes"}
}
