package compare

import (
	"bytes"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// maxNames is how many names a report has, unless masks name more. Further names count as other.
const maxNames = 64

// A tally holds the counts of a name.
type tally struct {
	text                                          string
	equal, different, masked, unsettled, examples atomic.Uint64
	lags                                          histogram
}

// A Report holds the figures of all sessions of a plan. It is safe for concurrent use: figures are atomic, and the
// lock is for names and examples.
type Report struct {
	sessions, refused, unnamed, summed, windowed, shadowUnframed atomic.Uint64
	stopped                                                      [stops]atomic.Uint64

	other   *tally // for further names
	unknown *tally // for answers to unknown requests

	began    time.Time
	mu       sync.Mutex
	names    map[string]*tally // including other and unknown
	examples []Example
}

// NewReport returns an empty report.
func NewReport() *Report {
	r := &Report{began: time.Now(), other: &tally{text: "other"}, unknown: &tally{text: "unknown"}}
	r.names = map[string]*tally{r.other.text: r.other, r.unknown.text: r.unknown}
	return r
}

// name returns the tally of a name. A name from the configuration always has one.
func (r *Report) name(text string, configured bool) *tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch t := r.names[text]; {
	case t != nil:
		return t
	case !configured && len(r.names) >= maxNames:
		return r.other
	}
	t := &tally{text: text}
	r.names[text] = t
	return t
}

// settle counts an answer that both sides have ended.
func (r *Report) settle(f *flow, a *answer, lag int64) {
	switch {
	case a.masked:
		a.name.masked.Add(1)
	case f.diff != nil:
		a.name.different.Add(1)
		r.example(f, a)
	default:
		a.name.equal.Add(1)
	}
	if !f.s.ended {
		a.name.lags.add(lag)
	}
}

// Figures are the counts of a name, or of all names.
type Figures struct {
	Equal     uint64 // equal answers
	Different uint64 // different answers
	Masked    uint64 // answers that were not compared because a mask hides the whole answer
	Unsettled uint64 // answers that were equal so far when the session was cut
	Lag       Lag
}

// A Lag says how much later the shadow ended its answers than the primary. Differences below a microsecond count as
// alike. Quantiles are exact to an eighth, and negative if the shadow was faster.
type Lag struct {
	Slower, Faster, Alike uint64
	P50, P90, P99         time.Duration
}

// A Snapshot holds the figures of a report at one time.
type Snapshot struct {
	Began          time.Time         // when the report began
	Sessions       uint64            // compared sessions, including open ones
	Refused        uint64            // sessions that were not compared because the budget had no room
	Stopped        map[string]uint64 // sessions that were compared only in part, by reason
	Unnamed        uint64            // sessions with unknown names, because not all of the client's bytes were seen
	Summed         uint64            // times that hashes were compared, because one side was too far ahead to keep its bytes
	MaskLimited    uint64            // places in long frames where a mask needed more bytes than it gets
	ShadowUnframed uint64            // sessions with bytes of the shadow that do not fit the framing
	Figures                          // of all names
	Names          []NameFigures     // names with figures, sorted
	Examples       []Example
}

// NameFigures are the figures of a name.
type NameFigures struct {
	Name string // a method, a line or a frame
	Figures
}

// Snapshot returns all figures. It reads them one by one while sessions go on.
func (r *Report) Snapshot() (s Snapshot) {
	s.Began = r.began
	s.Sessions, s.Refused, s.Unnamed = r.sessions.Load(), r.refused.Load(), r.unnamed.Load()
	s.Summed, s.MaskLimited, s.ShadowUnframed = r.summed.Load(), r.windowed.Load(), r.shadowUnframed.Load()
	s.Stopped = make(map[string]uint64)
	for i := Full; i < stops; i++ {
		s.Stopped[i.String()] = r.stopped[i].Load()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var all [2 * lagBuckets]uint64
	for _, t := range r.names {
		f := NameFigures{t.text, Figures{Equal: t.equal.Load(), Different: t.different.Load(), Masked: t.masked.Load(), Unsettled: t.unsettled.Load()}}
		if f.Figures == (Figures{}) {
			continue
		}
		var lags [2 * lagBuckets]uint64
		for i := range lags {
			lags[i] = t.lags[i].Load()
			all[i] += lags[i]
		}
		f.Lag = lagOf(&lags)
		s.Equal, s.Different = s.Equal+f.Equal, s.Different+f.Different
		s.Masked, s.Unsettled = s.Masked+f.Masked, s.Unsettled+f.Unsettled
		s.Names = append(s.Names, f)
	}
	s.Lag = lagOf(&all)
	slices.SortFunc(s.Names, func(a, b NameFigures) int { return strings.Compare(a.Name, b.Name) })
	s.Examples = slices.Clone(r.examples)
	return s
}

const (
	lagFloor   = 10 // times below 2^10 ns are in the first bucket
	lagOctaves = 27 // up to 2^37 ns, 137 s
	lagSteps   = 4  // buckets in an octave
	lagBuckets = 1 + lagOctaves*lagSteps
)

// A histogram counts how much later the shadow was, in buckets of a fourth of an octave. The first half is for a
// shadow that was earlier, and begins with the earliest.
type histogram [2 * lagBuckets]atomic.Uint64

func (h *histogram) add(lag int64) {
	if lag >= 0 {
		h[lagBuckets+bucket(uint64(lag))].Add(1)
	} else {
		h[lagBuckets-1-bucket(uint64(-lag))].Add(1)
	}
}

func bucket(ns uint64) int {
	if ns < 1<<lagFloor {
		return 0
	}
	octave := bits.Len64(ns) - 1
	step := ns >> (octave - 2) & (lagSteps - 1)
	return min(1+(octave-lagFloor)*lagSteps+int(step), lagBuckets-1)
}

func middle(bucket int) time.Duration {
	if bucket == 0 {
		return 0
	}
	octave, step := lagFloor+(bucket-1)/lagSteps, (bucket-1)%lagSteps
	low := uint64(1)<<octave + uint64(step)<<(octave-2)
	return time.Duration(low + 1<<(octave-3))
}

func lagOf(all *[2 * lagBuckets]uint64) (l Lag) {
	for i, n := range all {
		switch {
		case i < lagBuckets-1:
			l.Faster += n
		case i > lagBuckets:
			l.Slower += n
		default:
			l.Alike += n
		}
	}
	total := l.Faster + l.Slower + l.Alike
	l.P50, l.P90, l.P99 = quantile(all, total, 50), quantile(all, total, 90), quantile(all, total, 99)
	return l
}

// quantile returns the time that a percentage of all times does not exceed, exact to an eighth.
func quantile(all *[2 * lagBuckets]uint64, total, percent uint64) time.Duration {
	rank, sum := (total*percent+99)/100, uint64(0)
	for i, n := range all {
		if sum += n; n > 0 && sum >= rank {
			if i < lagBuckets {
				return -middle(lagBuckets - 1 - i)
			}
			return middle(i - lagBuckets)
		}
	}
	return 0
}

// An Example is an example of a difference.
type Example struct {
	Name    string // name of the request
	Offset  int64  // of the first difference in the answer, after masks, not counting lengths
	Exact   bool   // true if the difference is exactly at the offset, false if it is there or later
	Primary Excerpt
	Shadow  Excerpt
}

// An Excerpt holds the bytes of one side around the first difference: at most 128 before it and 128 from it on.
// Unless the bytes were asked for, letters and bytes from 0x80 on are shown as x, and digits as 0.
type Excerpt struct {
	Bytes  []byte
	Begin  int64 // offset of its first byte in the answer
	Length int64 // length of the whole answer
}

// A difference is the first difference in an answer.
type difference struct {
	at     int64
	exact  bool
	wanted bool // the report has room for an example
	equal  []byte
	next   [2][]byte
}

const differenceBytes = int(unsafe.Sizeof(difference{})) + 3*contextBytes

func (s *Session) difference(t *tally, at int64, exact bool) *difference {
	wanted := t.examples.Load() < uint64(s.plan.Examples) && s.purse.take(differenceBytes)
	return &difference{at: at, exact: exact, wanted: wanted}
}

func (s *Session) drop(d *difference) {
	if d != nil && d.wanted {
		s.purse.give(differenceBytes)
	}
}

// before notes the equal bytes before the difference.
func (d *difference) before(b []byte) {
	if d.wanted {
		d.equal = append(d.equal, b...)
	}
}

func (d *difference) add(side int, b []byte) {
	if room := contextBytes - len(d.next[side]); d.wanted && d.exact && room > 0 {
		d.next[side] = append(d.next[side], b[:min(len(b), room)]...)
	}
}

// example adds an example to the report, unless its name has enough.
func (r *Report) example(f *flow, a *answer) {
	d := f.diff
	if !d.wanted {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.name.examples.Load() >= uint64(f.s.plan.Examples) {
		return
	}
	a.name.examples.Add(1)
	length := [2]int64{f.behind, f.behind}
	length[f.ahead] = a.total
	excerpt := func(side int) Excerpt {
		b := append(bytes.Clone(d.equal), d.next[side]...)
		if f.s.plan.Redact {
			redact(b)
		}
		return Excerpt{Bytes: b, Begin: d.at - int64(len(d.equal)), Length: length[side]}
	}
	r.examples = append(r.examples, Example{Name: a.name.text, Offset: d.at, Exact: d.exact, Primary: excerpt(primary), Shadow: excerpt(shadow)})
}

// redact hides letters and digits.
func redact(b []byte) {
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9':
			b[i] = '0'
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= 0x80:
			b[i] = 'x'
		}
	}
}
