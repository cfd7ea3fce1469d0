package kerneltrace

import (
	"bufio"
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
)

// A Socket is a TCP socket of a process.
type Socket struct {
	PID           int
	Local, Remote netip.AddrPort
	Listens       bool
	Netns         uint32 // number of its network namespace
	// Shared means that a process that is not traced listens at the same address (SO_REUSEPORT).
	Shared bool
}

// stateListen is TCP_LISTEN of include/net/tcp_states.h.
const stateListen = 0x0a

// A namespace is the sockets of the processes that share a network namespace.
type namespace struct {
	reader int            // a process whose tables are those of the namespace
	owners map[uint64]int // the process with a socket of that number
}

// Sockets returns the TCP sockets of some processes, and lines on processes whose sockets are not
// known: those of another user, for one (proc_pid_fd(5)).
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
			notes = append(notes, fmt.Sprintf("the sockets of process %d are not known: %v", pid, err))
		}
	}
	for netns, n := range all {
		sockets, err := n.sockets(netns)
		if err != nil {
			notes = append(notes, fmt.Sprintf("the sockets of the network of process %d are not known: %v", n.reader, err))
		}
		list = append(list, sockets...)
	}
	return list, append(notes, sharedNote(list)...)
}

// sockets returns those of the processes of the namespace.
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

// netnsOf returns the number of the network namespace of a process.
func netnsOf(pid int) (uint32, error) {
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(name, "net:["), "]"), 10, 32)
	return uint32(n), err
}

// socketInodes adds the numbers of the sockets among the descriptors of a process.
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
				continue // closed meanwhile
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

// readTable reads the sockets of the network namespace of a process; a kernel without IPv6 has
// no table of it.
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

// parseRow parses a row; the head of the table is none.
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

// parseTableAddress parses an address as the tables have it: words of four bytes in the byte
// order of the machine, in hexadecimal.
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

// words returns an address as the programs have it: 16 bytes, of IPv4 mapped ones.
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

// places returns the places that a socket listens at: one of all addresses of IPv6 takes clients
// of IPv4 too, unless IPV6_V6ONLY is set, which the tables do not have.
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

// accepting returns the places of listeners that may have accepted a socket.
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

// sharedNote names the addresses at which other processes listen too.
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
	return []string{"other processes listen at " + strings.Join(shared, ", ") + " too: events of their clients cannot be distinguished from those of the traced ones"}
}
