package lb

// perEndpoint is how many slots an endpoint has in a table, at least: with so many
// none has more than a hundredth more than another ("Maglev: A Fast and Reliable
// Software Network Load Balancer", NSDI 2016, section 3.4).
const perEndpoint = 100

// Prime numbers, the first two of them the paper's.
var tableSizes = []int{65537, 655373, 1310759, 2621527, 5243059, 10486163, 20972351, 41944733}

// tableSize returns the size of the table for so many endpoints. Where a tier grows
// from one size to the next, from 655 endpoints to 656 for the first time, nearly all
// clients move: a size that never changes would be as large for two endpoints as for
// ten thousand.
func tableSize(endpoints int) int {
	for _, size := range tableSizes {
		if size/perEndpoint >= endpoints {
			return size
		}
	}
	return tableSizes[len(tableSizes)-1]
}

// A preference is in which a member prefers the slots of a table.
type preference struct{ at, skip uint32 }

func (o *preference) next(size int) {
	if o.at += o.skip; o.at >= uint32(size) {
		o.at -= uint32(size)
	}
}

// maglev fills a table whose size is prime as the paper says: each endpoint prefers
// the slots in an order of its own, a permutation, and they take turns to take the
// first that is free. Where weights differ, turns are those of the schedule.
func maglev(members []*Endpoint, weights []int, size int) []uint32 {
	turns := schedule(weights)
	if len(turns) == 0 {
		return nil
	}
	orders := make([]preference, len(members))
	for i, e := range members {
		orders[i] = preference{uint32(reduce(mix(e.hash), uint64(size))), 1 + uint32(reduce(mix(e.hash+golden), uint64(size-1)))}
	}
	table := make([]uint32, size)
	taken := make([]uint64, (size+63)/64) // bits: they fit into a cache where the table does not
	for filled, turn := 0, 0; filled < size; filled++ {
		who := turns[turn]
		if turn++; turn == len(turns) {
			turn = 0
		}
		o := &orders[who]
		for taken[o.at/64]>>(o.at%64)&1 != 0 {
			o.next(size)
		}
		taken[o.at/64] |= 1 << (o.at % 64)
		table[o.at] = who
	}
	return table
}
