package arena

// A region is the part of the mapping for one node.
type region struct {
	node   int // -1: not bound
	chunks int // of the budget
	offset int64
	bytes  int64 // of the mapping: the chunks, rounded up
}

// regions divides the budget over the nodes of the Locals, by their number. nodes
// is nil if nothing is to be bound. Each node gets one chunk at least, so the sum
// may be larger than size.
func regions(size int64, nodes []int) []region {
	chunks := int((size + ChunkSize - 1) / ChunkSize)
	if nodes == nil {
		return []region{{node: -1, chunks: chunks}}
	}
	var out []region
	seen := 0
	for _, n := range nodesOf(nodes) {
		before := chunks * seen / len(nodes)
		seen += count(nodes, n)
		out = append(out, region{node: n, chunks: max(1, chunks*seen/len(nodes)-before)})
	}
	return out
}

// lay places the regions one after the other, each rounded up to whole pages of
// that kind, and returns how long they are together. Several nodes cannot share a
// huge page, whatever the kernel makes of the mapping later.
func lay(rs []region, p Pages) int64 {
	granule := int64(ChunkSize)
	if p != PagesPlain || len(rs) > 1 {
		granule = hugeSize
	}
	at := int64(0)
	for i := range rs {
		r := &rs[i]
		r.offset = at
		r.bytes = (int64(r.chunks)*ChunkSize + granule - 1) / granule * granule
		at += r.bytes
	}
	return at
}

// hugeSize is the size of the huge pages that are asked for, in bytes.
const hugeSize = 2 << 20

// nodesOf returns the different nodes in the order in which they come.
func nodesOf(nodes []int) (different []int) {
	for _, n := range nodes {
		if count(different, n) == 0 {
			different = append(different, n)
		}
	}
	return different
}

func count(nodes []int, node int) (n int) {
	for _, x := range nodes {
		if x == node {
			n++
		}
	}
	return n
}
