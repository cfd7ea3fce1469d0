package claims

// Where the figures stand. Those of Go's commits are from the commit messages.
const (
	pipeCommit  = "golang/go commit 643d240a11b2 (CL 271537) for issue golang/go#42740, in Go 1.17, and its author's article; HAProxy had such a pool before."
	stealCommit = "golang/go commit d5fd2dd6a17a (CL 166960), in Go 1.13."
	poolArticle = "\"Go: Understand the Design of Sync.Pool\", an article of 2019 on Go 1.12 and 1.13."

	claimCommand = "penstock-bench claims "
)

var pipeClaims = []*Claim{
	{
		ID:        "pipe-pool",
		Title:     "A pipe from a pool",
		Published: "1.36 µs → 0.02 µs (-98.57 %), 24 B → 0",
		Measures: "A pipe is had for a moment, and no bytes are moved: pipe2, a fcntl and two closes against Get and Put of a pool. " +
			"One goroutine, eight Ps, on a 48-core EPYC.",
		Source:  pipeCommit,
		Command: claimCommand + "pipe-pool, or go test ./pipe -run '^$' -bench 'SplicePipe$'",
		Honest: "True, and the gain is larger here, because making a pipe costs more. But no program only leases pipes: " +
			"of a whole short connection over loopback the pool saves 13 to 17 % (docs/pipe.md). " +
			"A lease from Penstock's pool costs somewhat more than one from Go's own. In exchange the pool has a bound, a budget and no finalizers.",
		measure: measurePipePool,
	},
	{
		ID:        "pipe-pool-parallel",
		Title:     "A pipe from a pool, on all processors",
		Published: "747 ns → 4 ns (-99.41 %), 24 B → 0",
		Measures:  "The same on all Ps at once; the time elapsed, divided by all operations.",
		Source:    pipeCommit,
		Command:   claimCommand + "pipe-pool-parallel, or go test ./pipe -run '^$' -bench SplicePipeParallel",
		Honest: "4 ns are a share, not a time: with eight Ps no pipe was had in less than 32 ns. " +
			"Likewise 747 ns are 6 µs for each, more than four times the time on one P: eight processors that only make pipes wait for each other in the kernel. " +
			"Those of a proxy wait less, because they have other work in between.",
		measure: measurePipePoolParallel,
	},
}

var poolClaims = []*Claim{
	{
		ID:        "object-pool",
		Title:     "Objects from sync.Pool",
		Published: "3.02 ms → 1.36 ms, 160 kB → 1.05 kB per 10,000 objects",
		Measures:  "10,000 objects of one int, one after the other, made or had from sync.Pool.",
		Source:    poolArticle,
		Command:   claimCommand + "object-pool, or go test ./pool -run '^$' -bench 'WithPool|WithoutPool'",
		Honest: "302 ns are no allocation of eight bytes: the benchmark stops and starts its timer for each object (see stop-timer). " +
			"Nor do 10,000 ints take 160 kB: the allocator puts two of them into 16 bytes, 80 kB in all, unless a stopped timer empties its caches between the two, and each takes 16. " +
			"Timed as a whole, such an object costs about as much from sync.Pool as made anew; only bytes are saved. " +
			"A pool pays for objects that are expensive to make, large, or have to be closed.",
		measure: measureObjectPool,
	},
	{
		ID:        "stop-timer",
		Title:     "A benchmark that stops its timer inside the loop",
		Published: "3.02 ms → 1.36 ms per 10,000 objects, measured so",
		Measures:  "The effect of StopTimer and StartTimer for each object: the loops of object-pool with a timer that works like testing.B's, and timed as a whole.",
		Source:    poolArticle,
		Command:   claimCommand + "stop-timer",
		Honest: "Such a benchmark measures the timer. It counts time for nothing at all; and both calls read the memory statistics, which stops the world and empties the allocator's caches, " +
			"so that each object is the first after that, and takes 16 bytes instead of 8: those are the published 160 kB. It makes an object many times as expensive as it is, and favors the pool, which does not allocate.",
		measure: measureStopTimer,
	},
	{
		ID:        "pool-across-collections",
		Title:     "The cost of collections to a pool",
		Published: "993 ms → 1.03 s, 249 kB → 10.6 MB per 10,000 objects with forced collections: the pool loses",
		Measures:  "The loops of object-pool with runtime.GC in them, on Go 1.12, where a collection emptied every sync.Pool.",
		Source:    poolArticle,
		Command:   claimCommand + "pool-across-collections, or go test ./pool -run '^$' -bench 'RatioWithPool|PoolAcrossGC'",
		Honest: "100 µs for each object are the collection: a pool can neither gain nor lose time there. sync.Pool loses bytes, because it makes its arrays anew after each. " +
			"(An object that is made takes 16 bytes here instead of 8, for a collection empties the allocator's caches, too.) " +
			"Since Go 1.13 (commit 2dcbf8b3691e) an item outlives one collection and goes with the second. " +
			"More important: sync.Pool drops items without closing them. Penstock's pool does not depend on collections: it keeps used items, and closes those that it drops.",
		measure: measureCollected,
	},
	{
		ID:        "pool-private",
		Title:     "sync.Pool without locks: Get and Put",
		Published: "3.00 ns → 2.21 ns (-26 %)",
		Measures:  "BenchmarkPool on twelve Ps: each puts an item and gets one; the time elapsed, divided by all operations. The new figure varied by 36 %.",
		Source:    stealCommit,
		Command:   claimCommand + "pool-private, or go test ./pool -run '^$' -bench '^BenchmarkPool$|^BenchmarkRatio$/parallel' -cpu 2",
		Honest: "The commit replaced the part that others steal from, which this loop never enters: one item per P lies in the private slot, for which neither version takes a lock. " +
			"Beside it here is the old design, rewritten behind the same interface (\"locked\"): the difference, either way, is smaller than that of one run to the next, which gave from 0.93 to 1.13.",
		measure: measurePool,
	},
	{
		ID:        "pool-overflow",
		Title:     "sync.Pool without locks: beyond the private slot",
		Published: "600 ns → 587 ns (-2.21 %)",
		Measures:  "BenchmarkPoolOverflow on twelve Ps: a hundred Puts, then a hundred Gets; the time elapsed, divided by all operations.",
		Source:    stealCommit,
		Command:   claimCommand + "pool-overflow, or go test ./pool -run '^$' -bench 'PoolOverflow|^BenchmarkRatio$/overflow' -cpu 2",
		Honest: "If each P uses only its own items, a mutex is never contended, and a queue without one gains little: here it takes about three quarters of the time of the old design, rewritten behind the same interface (\"locked\"). " +
			"The commit was made for stealing and for the pauses. Penstock's pool takes fewer steps than both: most Gets and Puts touch one array of the P.",
		measure: measureOverflow,
	},
	{
		ID:        "pool-pause",
		Title:     "sync.Pool and the stopped world",
		Published: "71 µs → 5.6 µs, p95 73.1 µs → 6.7 µs",
		Measures: "BenchmarkPoolSTW on twelve Ps: the pause of a collection that meets 100,000 items in a sync.Pool. " +
			"Before, each slot was cleared in the pause; since then whole queues are dropped.",
		Source:  stealCommit,
		Command: claimCommand + "pool-pause, or go test ./pool -run '^$' -bench 'PoolSTW|RatioSTW'",
		Honest: "True, and the best part of that commit: the pause became proportional to the pools, and was proportional to the items. " +
			"The rest of a pause is the runtime's own. So it is compared with a program that has as many items in a plain slice; each is alone in the heap. Penstock's pool does nothing in a pause, yet runs of a few rounds gave from 0.84 to 1.62 of the slice's: a pause of 20 µs cannot be measured more exactly here. docs/pool.md has longer ones.",
		measure: measurePauses,
	},
	{
		ID:        "pool-expensive-new",
		Title:     "sync.Pool without locks: its loss",
		Published: "3.14 ms → 3.69 ms (+17.7 %), 33.9 → 40.0 New per operation",
		Measures:  "BenchmarkPoolExpensiveNew on twelve Ps: each takes and gives a hundred items that take a millisecond to make, among garbage. A loss, in the message of the commit itself.",
		Source:    stealCommit,
		Command:   claimCommand + "pool-expensive-new, or go test ./pool -run '^$' -bench PoolExpensiveNew -cpu 2",
		Honest: "The commit after it (2dcbf8b3691e) is the remedy: since then items outlive one collection. " +
			"Neither of the two versions exists in today's runtime, so this row has the present sync.Pool, and Penstock's pool, which makes each item once.",
		measure: measureExpensive,
	},
}
