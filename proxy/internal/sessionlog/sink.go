package sessionlog

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
)

// Kinds of destinations.
const (
	toFile = iota
	toStderr
	toSyslogUDP
	toSyslogUnix
	toJournald
)

// A Destination is where lines go. The zero value is none.
type Destination struct {
	kind int
	at   string // path, or address
}

// journalSocket is where journald takes entries of its native protocol
// (systemd.io/JOURNAL_NATIVE_PROTOCOL).
const journalSocket = "/run/systemd/journal/socket"

// ParseDestination reads a destination: stderr, journald or journald:PATH of its socket, syslog+udp://HOST:PORT with the
// IP address of the host, syslog+unix:PATH, or the absolute path of a file or FIFO.
func ParseDestination(text string) (Destination, error) {
	scheme, rest, found := strings.Cut(text, ":")
	switch {
	case text == "stderr":
		return Destination{toStderr, ""}, nil
	case text == "journald":
		return Destination{toJournald, journalSocket}, nil
	case found && scheme == "journald":
		return pathTo(toJournald, rest)
	case found && scheme == "syslog+unix":
		return pathTo(toSyslogUnix, strings.TrimPrefix(rest, "//"))
	case found && scheme == "syslog+udp":
		at, err := netip.ParseAddrPort(strings.TrimPrefix(rest, "//"))
		if err != nil || at.Port() == 0 {
			return Destination{}, fmt.Errorf("%q is not an IP address with a port", strings.TrimPrefix(rest, "//"))
		}
		return Destination{toSyslogUDP, at.String()}, nil
	case found && !strings.Contains(scheme, "/"):
		return Destination{}, fmt.Errorf("there is no destination %s", scheme)
	}
	return pathTo(toFile, text)
}

var errRelative = errors.New("the path is not absolute")

func pathTo(kind int, path string) (Destination, error) {
	if !filepath.IsAbs(path) {
		return Destination{}, errRelative
	}
	return Destination{kind, path}, nil
}

// File returns the path of a file; empty for other destinations.
func (d Destination) File() string {
	if d.kind == toFile {
		return d.at
	}
	return ""
}

// A sink takes lines to a destination. It belongs to the writer's goroutine and never waits for
// long. It counts lines that it does not take.
type sink interface {
	// add adds a line, without its end.
	add(line []byte, e *Event)
	// flush writes the lines that were added.
	flush()
	// look is called before lines are added, after some time. It looks whether the destination is
	// another file or receiver now, and opens it again then, or always if again is set.
	look(again bool)
	// counts are the lines written and dropped since the last call, and the last error.
	counts() (written, dropped int64, err error)
	close()
}

// open opens a destination. A file that cannot be opened is an error; a dead receiver is not.
func (d Destination) open(c *context) (sink, error) {
	switch d.kind {
	case toFile:
		return openFile(d.at)
	case toStderr:
		return openStderr()
	case toJournald:
		return &journal{datagrams: datagrams{address: &net.UnixAddr{Name: d.at, Net: "unixgram"}}, context: c}, nil
	case toSyslogUnix:
		return &syslog{datagrams: datagrams{address: &net.UnixAddr{Name: d.at, Net: "unixgram"}}, context: c}, nil
	default:
		return &syslog{datagrams: datagrams{address: net.UDPAddrFromAddrPort(netip.MustParseAddrPort(d.at))}, context: c}, nil
	}
}
