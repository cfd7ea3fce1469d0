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

// A Destination is where lines go. The zero value is no destination.
type Destination struct {
	kind int
	at   string // path, or address
}

// journalSocket is journald's socket for its native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL).
const journalSocket = "/run/systemd/journal/socket"

// ParseDestination reads a destination: stderr, journald, journald:PATH (with the path of its socket),
// syslog+udp://IP:PORT, syslog+unix:PATH, or the absolute path of a file or FIFO.
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

// File returns the path of a file, or "" for any other destination.
func (d Destination) File() string {
	if d.kind == toFile {
		return d.at
	}
	return ""
}

// Socket returns the path of a unix socket of another process; "": there is none.
func (d Destination) Socket() string {
	if d.kind == toJournald || d.kind == toSyslogUnix {
		return d.at
	}
	return ""
}

// A sink writes lines to a destination. The writer's goroutine owns it. It never waits for long, and counts the lines
// that it cannot write.
type sink interface {
	// add adds a line. The line has no line break at its end.
	add(line []byte, e *Event)
	// flush writes the lines that were added.
	flush()
	// look is called from time to time before lines are added. It opens the destination again if that is another file
	// or receiver now, or if again is true.
	look(again bool)
	// counts returns the numbers of lines written and dropped since the last call, and the last error.
	counts() (written, dropped int64, err error)
	close()
}

// open opens a destination. It fails if a file cannot be opened, or if another user could replace a receiver's socket, but not if a receiver is dead.
func (d Destination) open(c *context) (sink, error) {
	switch d.kind {
	case toFile:
		return openFile(d.at)
	case toStderr:
		return openStderr()
	case toJournald:
		to, err := openUnix(d.at)
		return &journal{datagrams: to, context: c}, err
	case toSyslogUnix:
		to, err := openUnix(d.at)
		return &syslog{datagrams: to, context: c}, err
	default:
		return &syslog{datagrams: datagrams{address: net.UDPAddrFromAddrPort(netip.MustParseAddrPort(d.at))}, context: c}, nil
	}
}
