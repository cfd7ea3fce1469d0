package relay

// A mirrorRuns is the way in which the bytes of a mirror's pipes came there, in their order: lengths of runs, positive for
// bytes by tee(2), negative for bytes that were written. There are no more runs than
// the pipes have slots.
type mirrorRuns []int32

// reset forgets all. What a mirror needs as a rule stays with it, so that its moves allocate nothing.
func (r *mirrorRuns) reset() {
	if *r = (*r)[:0]; cap(*r) > 16 {
		*r = nil
	}
}

// add notes n bytes behind the others.
func (r *mirrorRuns) add(n int, teed bool) {
	if n <= 0 {
		return
	}
	run := int32(n) // a pipe's bytes at most
	if !teed {
		run = -run
	}
	if last := len(*r) - 1; last >= 0 && ((*r)[last] > 0) == teed {
		(*r)[last] += run
		return
	}
	*r = append(*r, run)
}

// remove takes out the first n bytes, and returns how many of them came by tee(2).
func (r *mirrorRuns) remove(n int) (teed int) {
	for n > 0 && len(*r) > 0 {
		run := &(*r)[0]
		k := min(n, int(max(*run, -*run)))
		n -= k
		if *run > 0 {
			teed += k
			*run -= int32(k)
		} else {
			*run += int32(k)
		}
		if *run == 0 {
			*r = (*r)[:copy(*r, (*r)[1:])]
		}
	}
	return teed
}
