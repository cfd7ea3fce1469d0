package relay

import (
	"slices"
	"syscall"
)

// Scripted sockets: a source and a sink that follow a list of events, so that a
// direction can be led by hand through every order of them.

type eventKind uint8

const (
	evBytes  eventKind = iota // source: n bytes arrive; sink: room for n bytes
	evBlock                   // EAGAIN, until the driver has waited
	evEINTR                   // one call is interrupted
	evRefuse                  // one splice answers EINVAL (reads and writes do not see it)
	evUrgent                  // source: an urgent mark; splice gives 0 or EAGAIN with bytes behind it
	evEnd                     // source: FIN
	evReset                   // source: ECONNRESET; sink: EPIPE
)

var eventNames = [...]string{"bytes", "block", "eintr", "refuse", "urgent", "end", "reset"}

func (k eventKind) String() string { return eventNames[k] }

type event struct {
	kind eventKind
	n    int
}

// A script is the events to come. Past its end a source has ended and a sink
// takes everything.
type script struct {
	events []event
}

func (s *script) head() (event, bool) {
	if len(s.events) == 0 {
		return event{}, false
	}
	return s.events[0], true
}

func (s *script) pop() { s.events = s.events[1:] }

// wake is what a driver's wait does. Bytes that arrive behind an urgent mark wake
// a driver too.
func (s *script) wake() bool {
	for i, e := range s.events {
		switch e.kind {
		case evBlock:
			s.events = slices.Delete(s.events, i, i+1)
			return true
		case evBytes, evEnd, evReset:
			return false
		}
	}
	return false
}

// next handles what source and sink have in common and returns an event that
// concerns the caller, or an error.
func (s *script) next(splice bool) (event, error) {
	for {
		e, ok := s.head()
		switch {
		case !ok:
			return event{kind: evEnd}, nil
		case e.kind == evBlock:
			return e, syscall.EAGAIN
		case e.kind == evEINTR:
			s.pop()
			return e, syscall.EINTR
		case e.kind == evRefuse:
			s.pop()
			if splice {
				return e, syscall.EINVAL
			}
		case e.kind == evBytes && e.n == 0:
			s.pop()
		default:
			return e, nil
		}
	}
}

func (s *script) take(n int) {
	s.events[0].n -= n
	if s.events[0].n == 0 {
		s.pop()
	}
}

// pattern is byte i of every scripted stream; 251 is prime, so that a shift by a
// buffer's size shows.
func pattern(i int) byte { return byte(i % 251) }

var patternBlock = func() []byte {
	b := make([]byte, 251<<8)
	for i := range b {
		b[i] = pattern(i)
	}
	return b
}()

// fillPattern makes b the scripted stream from byte at on.
func fillPattern(b []byte, at int) {
	for n := copy(b, patternBlock[at%251:]); n < len(b); n += copy(b[n:], patternBlock[(at+n)%251:]) {
	}
}

type scriptedSource struct {
	script
	given int // bytes handed out: the position in the pattern
	// urgentAs is what splice says at an urgent mark.
	urgentAs error
	dead     bool // its end of file is in truth a reset
	calls    int
	marks    []int // that it was given, 1 for a lowered one
	noMark   bool  // it has none
}

func (s *scriptedSource) recv(p []byte) (int, error) {
	s.calls++
	for {
		e, err := s.next(false)
		if err != nil {
			return 0, err
		}
		switch e.kind {
		case evUrgent:
			s.pop()
		case evEnd:
			return 0, nil
		case evReset:
			return 0, syscall.ECONNRESET
		default:
			n := min(e.n, len(p))
			fillPattern(p[:n], s.given)
			s.given += n
			s.take(n)
			return n, nil
		}
	}
}

func (s *scriptedSource) fill(c splicePipe, max int) (int, error) {
	s.calls++
	p := c.(*scriptedPipe)
	if p.Len() > 0 {
		panic("fill of a pipe that holds bytes")
	}
	e, err := s.next(true)
	if err != nil {
		return 0, err
	}
	switch e.kind {
	case evUrgent:
		return 0, s.urgentAs
	case evEnd:
		return 0, nil
	case evReset:
		return 0, syscall.ECONNRESET
	}
	n := min(e.n, max, p.size)
	p.bytes = make([]byte, n)
	fillPattern(p.bytes, s.given)
	s.given += n
	s.take(n)
	return n, nil
}

func (s *scriptedSource) peek(error) (int, error) {
	for i, e := range s.events {
		switch {
		case e.kind == evBlock:
			return 0, syscall.EAGAIN
		case e.kind == evReset:
			return 0, syscall.ECONNRESET
		case e.kind == evEnd:
			return 0, nil
		case e.kind == evBytes && e.n > 0:
			return 1, nil
		case e.kind == evUrgent && i == len(s.events)-1:
			return 0, nil
		}
	}
	return 0, nil
}

func (s *scriptedSource) transfer(dst sink, max int) (int, string, error) {
	s.calls++
	to := dst.(*scriptedSink)
	e, err := s.next(true)
	if err != nil {
		return 0, "sendfile", err
	}
	if e.kind != evBytes {
		return 0, "sendfile", nil
	}
	b := make([]byte, min(e.n, max))
	fillPattern(b, s.given)
	n, err := to.take(b, true)
	s.given += n
	if n > 0 {
		s.script.take(n)
	}
	return n, "sendfile", err
}

func (s *scriptedSource) aborted() bool { return s.dead }

func (s *scriptedSource) raiseMark(n int) bool {
	s.marks = append(s.marks, n)
	return !s.noMark
}

func (s *scriptedSource) lowerMark() { s.marks = append(s.marks, 1) }

func (s *scriptedSource) queued() int {
	n := 0
	for _, e := range s.events {
		if e.kind == evBlock || e.kind == evEnd || e.kind == evReset {
			break
		}
		if e.kind == evBytes {
			n += e.n
		}
	}
	return n
}

type scriptedSink struct {
	script
	got   []byte
	ended int // closeWrite calls
	calls int
}

func (s *scriptedSink) take(p []byte, splice bool) (int, error) {
	s.calls++
	e, err := s.next(splice)
	switch {
	case err != nil:
		return 0, err
	case e.kind == evReset:
		return 0, syscall.EPIPE
	case e.kind == evBytes:
		p = p[:min(e.n, len(p))]
		s.script.take(len(p))
	}
	s.got = append(s.got, p...)
	return len(p), nil
}

func (s *scriptedSink) send(p []byte) (int, error) { return s.take(p, false) }

func (s *scriptedSink) drain(c splicePipe, max int) (int, error) {
	p := c.(*scriptedPipe)
	n, err := s.take(p.bytes[:min(max, len(p.bytes))], true)
	p.bytes = p.bytes[n:]
	return n, err
}

func (s *scriptedSink) closeWrite() error { s.ended++; return nil }

type scriptedPipe struct {
	size  int
	bytes []byte
}

func (p *scriptedPipe) Size() int                   { return p.size }
func (p *scriptedPipe) Len() int                    { return len(p.bytes) }
func (p *scriptedPipe) Fill(int, int) (int, error)  { panic("a scripted pipe has no descriptor") }
func (p *scriptedPipe) Drain(int, int) (int, error) { panic("a scripted pipe has no descriptor") }

func (p *scriptedPipe) FillSocket(fd, max int) (int, error)  { return p.Fill(fd, max) }
func (p *scriptedPipe) DrainSocket(fd, max int) (int, error) { return p.Drain(fd, max) }

func (p *scriptedPipe) Read(b []byte) (int, error) {
	n := copy(b, p.bytes)
	p.bytes = p.bytes[n:]
	return n, nil
}

// A scriptedLender counts what is leased. It lends no pipe while dry.
type scriptedLender struct {
	buffers, pipes int // leased now
	dirty          int // pipes that came back with bytes in them
	dry            error
	sizes          []int // asked for
	spare          *buffer
	guarded        []*direction
}

func (l *scriptedLender) guardMark(d *direction) { l.guarded = append(l.guarded, d) }

func (l *scriptedLender) buffer(int) (*buffer, error) {
	l.buffers++
	if l.spare == nil {
		return &buffer{b: make([]byte, bufferSize)}, nil
	}
	b := l.spare
	l.spare = nil
	return b, nil
}

func (l *scriptedLender) returnBuffer(b *buffer) {
	l.buffers--
	l.spare = b
}

func (l *scriptedLender) pipe(size int) (splicePipe, error) {
	l.sizes = append(l.sizes, size)
	if l.dry != nil {
		return nil, l.dry
	}
	l.pipes++
	return &scriptedPipe{size: size}, nil
}

func (l *scriptedLender) returnPipe(c splicePipe) {
	l.pipes--
	if c.Len() > 0 {
		l.dirty++
	}
}

// scripted returns a direction between scripted ends.
func scripted(mode mode, source, sink []event) (*direction, *scriptedSource, *scriptedSink, *scriptedLender) {
	src := &scriptedSource{script: script{events: source}, urgentAs: syscall.EAGAIN}
	dst := &scriptedSink{script: script{events: sink}}
	from := &scriptedLender{}
	cfg := Config{}.withDefaults()
	cfg.promote, cfg.demote = threshold{8, 2}, threshold{4, 2}
	d := &direction{
		link: &pair{source: src, sink: dst, env: &environment{leaser: from, tune: &cfg, counts: new(counts)}}, held: new(inFlight),
		mode: mode, pipeSize: defaultPipe,
	}
	return d, src, dst, from
}
