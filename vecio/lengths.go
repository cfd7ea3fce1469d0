package vecio

// A run is pieces of one length that follow each other.
type run struct{ size, count int }

// lengths are those of the pieces that are pending, the empty ones too, in order: they map a
// byte to its piece. Most programs write pieces of a few lengths, and to count those that are
// alike costs less than to note each one: BenchmarkWrite at 64 bytes.
type lengths struct {
	runs  fifo[run]
	count int64 // of pieces
	base  int64 // the position where the first begins
}

// add adds pieces of one length.
func (l *lengths) add(size, count int) {
	l.count += int64(count)
	if last := l.runs.last(); last != nil && last.size == size {
		last.count += count
		return
	}
	l.runs.push(run{size, count})
}

// reached returns how many pieces end at that position or before it, and how far beyond
// the end of the last of these it is.
func (l *lengths) reached(at int64) (pieces, offset int64) {
	end := l.base
	for _, r := range l.runs.all() {
		n := int64(r.count)
		if r.size > 0 {
			n = min(n, (at-end)/int64(r.size))
		}
		pieces, end = pieces+n, end+n*int64(r.size)
		if n < int64(r.count) {
			break
		}
	}
	return pieces, at - end
}

// forget drops runs that are written, once there are many, and returns how many pieces
// that were.
func (l *lengths) forget(written int64) (pieces int64) {
	if l.runs.len() < 1024 {
		return 0
	}
	n := 0
	for _, r := range l.runs.all() {
		end := l.base + int64(r.size)*int64(r.count)
		if end > written {
			break
		}
		n, pieces, l.base = n+1, pieces+int64(r.count), end
	}
	l.runs.drop(n)
	l.count -= pieces
	return pieces
}

func (l *lengths) reset() {
	l.runs.reset()
	l.count = 0
}
