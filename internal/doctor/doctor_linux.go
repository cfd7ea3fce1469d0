package doctor

import (
	"os"
	"slices"

	"github.com/penstock/penstock/internal/sys"
)

// Options are facts on the program that the doctor is part of. All of it may be left out.
type Options struct {
	// Sessions returns how many sessions that many descriptors allow. The default
	// is two for each.
	Sessions func(descriptors int) int
}

// Examine finds out what this host and this process can do. Each of its probes is bounded in
// time, closes what it opens, and changes nothing on the host; for some milliseconds up to 80
// pipes of 1 MiB are charged to the user. It never fails: a fact that cannot be found out is
// Unknown.
func Examine(o Options) *Report { return examine(o, host{os.DirFS("/")}) }

// fewDescriptors is how many a proxy needs for its only session, beside those that
// every program of Go's has: the poller's two, a listener, the session's two. With
// fewer the runtime may not even get its poller, without which it ends the process,
// so nothing else is tried.
const fewDescriptors = 5

func examine(o Options, h host) *Report {
	free := freeDescriptors() // before the runtime makes its poller, to read a file
	few := free.known && free.value < fewDescriptors
	if few {
		h = host{emptyFS{}}
	}
	p := newPatient(o, h)
	p.free = free
	first := p.check(topic{"descriptors", lookDescriptors})
	if few {
		return newReport(p.place.String(), []Check{first})
	}
	var checks []Check
	for i, t := range topics {
		if c := p.check(t); c.Figures != nil {
			checks = append(checks, c)
		}
		if i == 0 {
			checks = append(checks, first)
		}
	}
	p.grantAll(checks)
	return newReport(p.place.String(), checks)
}

// A topic is one thing to find out about: look has the side effects, and the facts
// that it returns judge themselves without any.
type topic struct {
	name string
	look func(p *process) facts
}

// facts are the figures of one topic.
type facts interface{ judge() finding }

// A finding is the verdict on facts.
type finding struct {
	state  State
	found  string
	cost   string
	mend   []string
	needs  []string // capabilities, which together mend it too
	unable bool
}

// The topics in the order of the report, without the descriptors, which come after the first
// one. Seccomp comes last: it has the calls that were refused before.
var topics = []topic{
	{"loopback", lookLoopback},
	{"splice", lookSplice},
	{"pipe-size", lookPipeSize},
	{"pipe-quota", lookPipeQuota},
	{"backlog", lookBacklog},
	{"syn-backlog", lookSynBacklog},
	{"ports", lookPorts},
	{"tcp-buffers", lookBuffers},
	{"rcvlowat", lookLowat},
	{"user-timeout", lookUserTimeout},
	{"reuseport", lookReuseport},
	{"zerocopy", lookZerocopy},
	{"cpus", lookCPUs},
	{"memory", lookMemory},
	{"numa", lookNUMA},
	{"clock", lookClock},
	{"membarrier", lookMembarrier},
	{"huge-pages", lookHugePages},
	{"arena", lookArena},
	{"executable-memory", lookExecutable},
	{"io_uring", lookIoUring},
	{"bpf", lookBPF},
	{"trace", lookTrace},
	{"capabilities", lookCapabilities},
	{"seccomp", lookSeccomp},
}

func (p *process) check(t topic) Check {
	figures := t.look(p)
	if figures == nil { // not asked for
		return Check{}
	}
	f := figures.judge()
	if f.mend == nil {
		f.mend = []string{} // and not null
	}
	return Check{Name: t.name, State: f.state, Found: f.found, Cost: f.cost, Mend: f.mend, Figures: figures, needs: f.needs, unable: f.unable}
}

// A process is the process that is examined, and findings of earlier probes for later ones.
type process struct {
	host
	Options
	place

	free        number   // how many descriptors could be had at first
	descriptors int      // how many the process may have
	lent        int64    // pages that Penstock's pipes may take
	refused     []string // calls that a sandbox refused
	unused      []string // the same, of calls that this release does not make
}

func newPatient(o Options, h host) *process {
	if o.Sessions == nil {
		o.Sessions = func(n int) int { return n / 2 }
	}
	return &process{host: h, Options: o, place: h.place()}
}

// place finds out where this process runs.
func (h host) place() place {
	set, err := sys.Capabilities()
	bound, _ := h.field("proc/self/status", "CapBnd")
	contained, by := h.contained()
	init, _ := h.text("proc/1/comm")
	return place{
		container: contained, engine: by, unit: h.unit(), init: init, virtual: h.virtual(), nested: h.namespaced(), seccomp: h.status("Seccomp"), user: os.Getuid(),
		effective: capabilities{set, err == nil}, bound: parseCapabilities(bound),
		noNewPrivs: h.status("NoNewPrivs").value == 1,
	}
}

// sandbox notes the call that failed as it does in a sandbox.
func (p *process) sandbox(err error) {
	p.refused = p.noted(p.refused, err)
}

// sandboxUnused is sandbox for calls that this release does not use.
func (p *process) sandboxUnused(err error) { p.unused = p.noted(p.unused, err) }

func (p *process) noted(calls []string, err error) []string {
	if call := callOf(err); p.filtered() && forbidden(err) && call != "" && !slices.Contains(calls, call) {
		return append(calls, call)
	}
	return calls
}
