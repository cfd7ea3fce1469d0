package router_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A condition is the true state of a server, whatever state others have for it.
type condition uint8

const (
	serving  condition = iota
	refusing           // no process listens
	dropping           // segments go nowhere: connects time out
	cutting            // connections are made, and reset at once
	mute               // connections are made, and nothing comes
	conditions
)

func (c condition) String() string {
	return [...]string{"serving", "refusing", "dropping", "cutting", "mute"}[c]
}

// accepts reports whether a connection is made.
func (c condition) accepts() bool { return c != refusing && c != dropping }

// A role is the answer of a serving server to a check.
type role uint8

const (
	yes role = iota
	no
	saysNothing
	roles
)

func (r role) String() string { return [...]string{"yes", "no", "silent"}[r] }

// A server is an endpoint as it truly is.
type server struct {
	*router.Endpoint
	addr  netip.AddrPort
	limit int
	clock func() int64

	mu    sync.Mutex
	is    condition
	role  role
	out   bool  // by an operator
	since int64 // it has been able to serve; never: it is not
	noes  int64 // since when its checks are answered no; never: they are not
	yeses int64 // since when they are answered yes; never: they are not
	noted bool  // they may have been answered no
	vain  int   // unsuccessful connects of clients
}

// be changes the state of the server.
func (s *server) be(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	could := s.can()
	change()
	switch can := s.can(); {
	case !can:
		s.since = never
	case !could:
		s.since = s.clock()
	}
	s.answers(&s.noes, no)
	s.answers(&s.yeses, yes)
	s.noted = s.noted || s.noes != never
}

// answers notes since when checks are answered so.
func (s *server) answers(since *int64, what role) {
	switch {
	case s.is != serving || s.role != what:
		*since = never
	case *since == never:
		*since = s.clock()
	}
}

// heard is how long it takes, at most, until a check that is answered yes makes up for one that
// was answered no.
const heard = 8 * time.Second

// couldSince is since when the server could serve; never: it cannot.
func (s *server) couldSince() int64 {
	s.be(func() {}) // it may have no room any more
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.noted || s.since == never {
		return s.since
	}
	if s.yeses == never {
		return never
	}
	return max(s.since, s.yeses+int64(heard))
}

const never = 1<<63 - 1

// can reports whether it accepts connections, and has room, and no operator has it out.
func (s *server) can() bool {
	return s.is.accepts() && !s.out && (s.limit == 0 || s.Active() < s.limit)
}

// roundTrip is how long a segment and its answer take.
const roundTrip = time.Millisecond

// A recheck asks at intervals whether a connect is to be given up; its zero value does not.
type recheck struct {
	every   time.Duration
	abandon func() bool
}

// sleep waits, and reports whether the connect is to be given up.
func (r recheck) sleep(d time.Duration) bool {
	for ; r.every > 0 && d > r.every; d -= r.every {
		time.Sleep(r.every)
		if r.abandon() {
			return true
		}
	}
	time.Sleep(d)
	return false
}

// connect is a connect(2), whose first segment is repeated after 1 s, 3 s and so on.
func (s *server) connect(timeout time.Duration, r recheck) error {
	for wait := time.Second; ; wait *= 2 {
		time.Sleep(min(roundTrip, timeout))
		switch is, _ := s.now(); {
		case is.accepts():
			return nil
		case is == refusing:
			return os.NewSyscallError("connect", syscall.ECONNREFUSED)
		case timeout <= wait:
			if r.sleep(timeout - roundTrip) {
				return worker.ErrAbandoned
			}
			return os.ErrDeadlineExceeded
		}
		if r.sleep(wait - roundTrip) {
			return worker.ErrAbandoned
		}
		timeout -= wait
	}
}

func (s *server) now() (condition, role) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.is, s.role
}

// A prober connects to a server, and requests its role.
type prober struct {
	of   *server
	asks bool
}

// Probe implements [health.Prober].
func (p prober) Probe(ctx context.Context) error {
	end, _ := ctx.Deadline()
	if err := p.of.connect(time.Until(end), recheck{}); err != nil || !p.asks {
		return err
	}
	time.Sleep(roundTrip)
	switch is, role := p.of.now(); {
	case is == cutting:
		return os.NewSyscallError("read", syscall.ECONNRESET)
	case is == serving && role == yes:
		return nil
	case is == serving && role == no:
		return fmt.Errorf("status 503: %w", health.ErrAnswer)
	}
	<-ctx.Done()
	return ctx.Err()
}
