package compare

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// maxNames is how many names a report has; further ones count as other.
const maxNames = 64

// A name is an index of the names of a report.
type name uint8

// The names that every report has.
const (
	other   name = iota
	unnamed      // answers whose request is not known
)

// A tally has the counts of a name.
type tally struct {
	text                                          string
	equal, different, masked, unsettled, examples atomic.Uint64
	lags                                          histogram
}

// A Report has the figures of all sessions of a plan. It is safe for concurrent use, and makes
// no session wait for another: figures are atomic, and the lock is for new names and examples.
type Report struct {
	sessions, refused, unnamed, summed, windowed, shadowUnframed atomic.Uint64
	stopped                                                      [stops]atomic.Uint64

	names atomic.Pointer[map[string]name]
	tally [maxNames]atomic.Pointer[tally]

	began    time.Time
	mu       sync.Mutex
	examples []Example
}

// NewReport returns a report without figures.
func NewReport() *Report {
	r := &Report{began: time.Now()}
	r.names.Store(&map[string]name{"other": other, "unknown": unnamed})
	r.tally[other].Store(&tally{text: "other"})
	r.tally[unnamed].Store(&tally{text: "unknown"})
	return r
}

// name returns the index of a name: other, if there are too many.
func (r *Report) name(text string) name {
	if n, ok := (*r.names.Load())[text]; ok {
		return n
	}
	return r.add(text)
}

// nameOf is name for bytes. It allocates only if the name is new.
func (r *Report) nameOf(text []byte) name {
	if n, ok := (*r.names.Load())[string(text)]; ok {
		return n
	}
	return r.add(string(text))
}

func (r *Report) add(text string) name {
	if len(*r.names.Load()) == maxNames {
		return other
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	names := *r.names.Load()
	if n, ok := names[text]; ok {
		return n
	}
	if len(names) == maxNames {
		return other
	}
	n := name(len(names))
	names = maps.Clone(names)
	names[text] = n
	r.tally[n].Store(&tally{text: text})
	r.names.Store(&names)
	return n
}

func (r *Report) text(n name) string { return r.tally[n].Load().text }

// settle counts an answer of both sides.
func (r *Report) settle(f *flow, a *answer, lag int64) {
	t := r.tally[a.name].Load()
	switch {
	case a.masked:
		t.masked.Add(1)
	case f.diff != nil:
		t.different.Add(1)
		r.example(f, a)
	default:
		t.equal.Add(1)
	}
	if !f.s.ended {
		t.lags.add(lag)
	}
}

func (r *Report) unsettled(n name) { r.tally[n].Load().unsettled.Add(1) }

// Figures are the counts of a name, or of all.
type Figures struct {
	Equal     uint64 // answers that were equal
	Different uint64 // answers that were not
	Masked    uint64 // answers that a mask of a whole answer has kept from being compared
	Unsettled uint64 // answers that were equal as far as they came before the session was cut
	Lag       Lag
}

// A Lag is how much later the shadow had ended its answers than the primary. Times below a
// microsecond are alike. Quantiles are right to an eighth, and below zero if the shadow was faster.
type Lag struct {
	Slower, Faster, Alike uint64
	P50, P90, P99         time.Duration
}

// A Snapshot has the figures of a report at one time.
type Snapshot struct {
	Began          time.Time         // when the report began
	Sessions       uint64            // sessions compared, the open ones too
	Refused        uint64            // sessions for which the budget had no room
	Stopped        map[string]uint64 // sessions of which only the begin was compared, by reason
	Unnamed        uint64            // sessions of which the client's bytes were not all seen, so that names are unknown
	Summed         uint64            // times that one side was too far ahead for its bytes to be kept, so that sums of them were compared
	MaskLimited    uint64            // places in long frames where a mask needed more bytes than it is given
	ShadowUnframed uint64            // sessions in which the shadow's bytes were not of the framing
	Figures                          // of all names
	Names          []NameFigures     // those with figures, in order of their names
	Examples       []Example
}

// NameFigures are the figures of a name.
type NameFigures struct {
	Name string // of a command, a kind of statement, a path, a frame
	Figures
}

// Snapshot returns all figures. They are read one by one, while sessions go on.
func (r *Report) Snapshot() (s Snapshot) {
	s.Began = r.began
	s.Sessions, s.Refused, s.Unnamed = r.sessions.Load(), r.refused.Load(), r.unnamed.Load()
	s.Summed, s.MaskLimited, s.ShadowUnframed = r.summed.Load(), r.windowed.Load(), r.shadowUnframed.Load()
	s.Stopped = make(map[string]uint64)
	for i := Full; i < stops; i++ {
		s.Stopped[i.String()] = r.stopped[i].Load()
	}
	var all [2 * lagBuckets]uint64
	for i := range r.tally {
		t := r.tally[i].Load()
		if t == nil {
			continue
		}
		f := NameFigures{t.text, Figures{Equal: t.equal.Load(), Different: t.different.Load(), Masked: t.masked.Load(), Unsettled: t.unsettled.Load()}}
		if f.Figures == (Figures{}) {
			continue
		}
		lags := t.lags.counts()
		for j, n := range lags {
			all[j] += n
		}
		f.Lag = lagOf(&lags)
		s.Equal, s.Different = s.Equal+f.Equal, s.Different+f.Different
		s.Masked, s.Unsettled = s.Masked+f.Masked, s.Unsettled+f.Unsettled
		s.Names = append(s.Names, f)
	}
	s.Lag = lagOf(&all)
	slices.SortFunc(s.Names, func(a, b NameFigures) int { return compareText(a.Name, b.Name) })
	r.mu.Lock()
	s.Examples = slices.Clone(r.examples)
	r.mu.Unlock()
	return s
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

const differenceBytes = int(unsafe.Sizeof(difference{})) + 3*contextBytes
