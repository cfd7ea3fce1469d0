package doctor

import (
	"os"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// Examine finds out what this host and this process can do. sessions returns how many sessions a number of
// descriptors allows. Each of its probes is bounded in time, closes what it opens, and changes nothing on the
// host; for some milliseconds up to 80 pipes of 1 MiB are charged to the user. It never fails: a fact that
// cannot be found out is Unknown.
func Examine(sessions func(descriptors int) int) *Report {
	return examine(sessions, host{os.DirFS("/")})
}

// fewDescriptors is how many descriptors a proxy needs for a single session, besides the descriptors that
// every Go program has: two for the poller, one for a listener, two for the session. With fewer the runtime
// may not get its poller, and then it ends the process; so nothing else is tried.
const fewDescriptors = 5

func examine(sessions func(int) int, h host) *Report {
	if free := freeDescriptors(); free < fewDescriptors { // before the runtime makes its poller to read a file
		p := &process{place: place{user: os.Getuid()}}
		return newReport(p.String(), []Check{named("descriptors", p.tooFew(free))})
	}
	p := &process{host: h, place: h.place()}
	if soft, _ := descriptors(); soft != unknown {
		p.sessions = int64(sessions(int(soft)))
	}
	var checks []Check
	for _, t := range topics {
		checks = append(checks, named(t.name, t.look(p)))
	}
	return newReport(p.String(), checks)
}

func named(name string, c Check) Check {
	c.Name = name
	return c
}

// The topics, in the order of the report.
var topics = []struct {
	name string
	look func(p *process) Check
}{
	{"loopback", lookLoopback},
	{"descriptors", lookDescriptors},
	{"splice", lookSplice},
	{"pipes", lookPipes},
	{"backlog", lookBacklog},
	{"ports", lookPorts},
	{"rcvlowat", lookOption("SO_RCVLOWAT", sys.SOL_SOCKET, sys.SO_RCVLOWAT, 4096, "bulk flows wake the proxy for every few segments: over one connection 0.80 of io.Copy's CPU per GB instead of 0.64")},
	{"user-timeout", lookOption("TCP_USER_TIMEOUT", sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT, 12_345, "a peer that vanished is noticed only after all retransmissions of the kernel (net.ipv4.tcp_retries2), instead of after user_timeout")},
	{"reuseport", lookOption("SO_REUSEPORT", sys.SOL_SOCKET, sys.SO_REUSEPORT, 1, "a second process cannot take over a port while the first process still listens")},
	{"cpus", lookCPUs},
	{"memory", lookMemory},
	{"arena", lookArena},
	{"executable-memory", lookExecutable},
	{"capabilities", lookCapabilities},
}

// A process is the examined process, with findings of earlier probes for later ones.
type process struct {
	host
	place

	sessions int64 // sessions that the descriptors allow
	budget   int64 // pages that Penstock's pipes may take
}

// freeDescriptors makes descriptors until there are no more, at most 64, and closes them. It returns 64 if
// something other than their number ended it.
func freeDescriptors() int {
	const most = 64
	var open []int
	defer func() {
		for _, fd := range open {
			sys.Close(fd)
		}
	}()
	for len(open) < most {
		fd, err := sys.Eventfd()
		switch err {
		case nil:
			open = append(open, fd)
		case syscall.EMFILE, syscall.ENFILE:
			return len(open)
		default:
			return most
		}
	}
	return most
}
