package relay

// What observers see of shadows in one turn of the loop: so much of each, and of all of them. The rest waits in the kernel.
const (
	hearBytes    = 16 << 10
	hearAllBytes = 64 << 10
)

// A hearing shares a turn of the loop among the mirrors whose observers see answers of shadows. In a round each of them
// may read once. A round takes as many turns as it needs for all that wait.
type hearing struct {
	turn  int64  // the loop's
	bytes int    // that were read in it
	round uint32 // never 0
	short bool   // a mirror waits for its first read of the round
}

// may reports whether a mirror may read now.
func (h *hearing) may(m *Mirror, turn int64) bool {
	if h.turn != turn || h.round == 0 {
		h.turn, h.bytes = turn, 0
		if !h.short {
			if h.round++; h.round == 0 {
				h.round++
			}
		}
		h.short = false
	}
	if m.heard == h.round {
		return false
	}
	if h.bytes > hearAllBytes-hearBytes {
		h.short = true
		return false
	}
	m.heard = h.round
	return true
}
