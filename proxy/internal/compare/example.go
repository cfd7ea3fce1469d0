package compare

import "bytes"

// An Example is a difference.
type Example struct {
	Name    string // of the request
	Offset  int64  // of the first difference in the answer, masks applied and lengths left out
	Exact   bool   // whether the difference is at the offset, or somewhere from it on
	Primary Excerpt
	Shadow  Excerpt
}

// An Excerpt is the bytes of one side around the first difference: at most 128 before and 128 from
// it on. Unless they are asked for, letters and bytes from 0x80 on are x in it, and digits 0.
type Excerpt struct {
	Bytes  []byte
	Begin  int64 // offset of the first of them in the answer
	Length int64 // of the whole answer
}

// A difference is the first one in an answer.
type difference struct {
	at     int64
	exact  bool
	wanted bool // the report has room for an example
	equal  []byte
	next   [2][]byte
}

// difference returns the note of a difference.
func (s *Session) difference(n name, at int64, exact bool) *difference {
	s.spend(diffCost)
	d := &difference{at: at, exact: exact}
	wanted := s.report.tally[n].Load().examples.Load() < uint64(max(s.plan.examples, 0))
	if d.wanted = wanted && s.purse.take(differenceBytes); d.wanted {
		d.equal = make([]byte, 0, contextBytes)
	}
	return d
}

// drop gives the memory of a difference back.
func (s *Session) drop(d *difference) {
	if d != nil && d.wanted {
		s.purse.give(differenceBytes)
	}
}

// before notes the bytes before the difference, which are equal.
func (d *difference) before(b []byte) {
	if d.wanted {
		d.equal = append(d.equal, b...)
	}
}

// add notes bytes of a side from the difference on.
func (d *difference) add(side int, b []byte) {
	if room := contextBytes - len(d.next[side]); d.wanted && d.exact && room > 0 {
		d.next[side] = append(d.next[side], b[:min(len(b), room)]...)
	}
}

// example adds an example to the report, if there are not enough of its name.
func (r *Report) example(f *flow, a *answer) {
	d := f.diff
	if !d.wanted {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tally[a.name].Load()
	if t.examples.Load() >= uint64(f.s.plan.examples) {
		return
	}
	t.examples.Add(1)
	length := [2]int64{f.behind, f.behind}
	length[f.ahead] = a.total
	excerpt := func(side int) Excerpt {
		b := append(bytes.Clone(d.equal), d.next[side]...)
		if f.s.plan.redact {
			redact(b)
		}
		return Excerpt{Bytes: b, Begin: d.at - int64(len(d.equal)), Length: length[side]}
	}
	r.examples = append(r.examples, Example{Name: t.text, Offset: d.at, Exact: d.exact, Primary: excerpt(primary), Shadow: excerpt(shadow)})
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
