package lb

// schedule returns whose turn it is, as indexes of weights: each as often as its
// weight says, without common factors, and as evenly as can be.
//
// Endpoints of the same weight are a class, within which they take turns. Classes, of
// which there are 256 at most, are interleaved as proportionate fair scheduling does
// (Baruah and others, 1996): the kth of p turns among all n is due between k*n/p and
// (k+1)*n/p, and of those that are due the one with the earliest end comes first. So at
// no point is a class a whole turn before or behind its share. It takes little longer
// than writing the result down; smooth round robin as in nginx would compare all
// endpoints for each turn.
func schedule(weights []int) []uint32 {
	classes, length := classify(weights)
	due := make(edfHeap, 0, len(classes))
	later := make([]uint16, length+1) // by when a turn begins to be due: the last class of which it is, counted from 1
	for i := range classes {
		classes[i].next, later[0] = later[0], uint16(i+1)
	}
	turns := make([]uint32, 0, length)
	for now := range length {
		for k := later[now]; k > 0; k = classes[k-1].next {
			due = due.push(classes[k-1].end(length)<<16 | uint64(k-1))
		}
		i := due[0] & 0xffff
		due = due.pop()
		c := &classes[i]
		turns = append(turns, c.members[c.member])
		if c.member++; c.member == len(c.members) {
			c.member = 0
		}
		at := max(c.begin, now+1)
		c.next, later[at] = later[at], uint16(i+1)
	}
	return turns
}

// A class is the endpoints of one weight.
type class struct {
	members []uint32
	member  int
	places  int    // turns that it has in the schedule
	begin   int    // when its next turn begins to be due
	rest    int    // and so many parts of places later
	next    uint16 // class whose turn begins at the same time
}

// end goes on to the turn after the next one, and returns when the next one is due at
// the latest.
func (c *class) end(length int) uint64 {
	c.begin += length / c.places
	if c.rest += length % c.places; c.rest >= c.places {
		c.rest -= c.places
		c.begin++
	}
	if c.rest > 0 {
		return uint64(c.begin + 1)
	}
	return uint64(c.begin)
}

// classify returns the classes, and the sum of their places.
func classify(weights []int) (classes []class, length int) {
	var by [MaxWeight + 1][]uint32
	divisor := 0
	for i, w := range weights {
		if w > 0 {
			by[w] = append(by[w], uint32(i))
			divisor = gcd(w, divisor)
		}
	}
	for w, members := range by {
		if places := len(members) * w; places > 0 {
			classes = append(classes, class{members: members, places: places / divisor})
			length += places / divisor
		}
	}
	return classes, length
}

// An edfHeap is a heap of turns: when each is due at the latest, shifted by 16, and its
// class.
type edfHeap []uint64

func (q edfHeap) push(t uint64) edfHeap {
	q = append(q, t)
	i := len(q) - 1
	for i > 0 && t < q[(i-1)/2] {
		q[i] = q[(i-1)/2]
		i = (i - 1) / 2
	}
	q[i] = t
	return q
}

// pop removes the first one.
func (q edfHeap) pop() edfHeap {
	last := len(q) - 1
	t := q[last]
	q = q[:last]
	if last == 0 {
		return q
	}
	i := 0
	for child := 1; child < last; child = 2*i + 1 {
		if child+1 < last && q[child+1] < q[child] {
			child++
		}
		if q[child] >= t {
			break
		}
		q[i] = q[child]
		i = child
	}
	q[i] = t
	return q
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
