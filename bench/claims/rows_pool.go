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
		Measures: "Having a pipe for a moment, nothing moved: pipe2, a fcntl and two closes against Get and Put of a pool. " +
			"One goroutine, eight Ps, on a 48-core EPYC.",
		Source:  pipeCommit,
		Command: claimCommand + "pipe-pool, or go test ./pipe -run '^$' -bench 'SplicePipe$'",
		Honest: "True, and more here, where making a pipe costs more. But nobody only has pipes: " +
			"of a whole short connection over loopback the pool saves about a sixth (docs/pipe.md). " +
			"A lease of ours costs somewhat more than one of Go's own pool, and for that has a bound, a budget and no finalizers.",
		measure: measurePipePool,
	},
	{
		ID:        "pipe-pool-parallel",
		Title:     "A pipe from a pool, on all processors",
		Published: "747 ns → 4 ns (-99.41 %), 24 B → 0",
		Measures:  "The same on all Ps at once; the time elapsed divided by what all of them did.",
		Source:    pipeCommit,
		Command:   claimCommand + "pipe-pool-parallel, or go test ./pipe -run '^$' -bench SplicePipeParallel",
		Honest: "4 ns are a share, not a time: with eight Ps nobody had a pipe in less than 32 ns. " +
			"Likewise 747 ns are 6 µs for each, more than four times what one alone takes: eight processors that do nothing but make pipes wait for each other in the kernel, " +
			"which those of a proxy do less, for they do other things in between.",
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
			"Timed whole, having such an object from sync.Pool costs about what making it does; what is saved are the bytes. " +
			"A pool pays for what is costly to make, or large, or has to be closed.",
		measure: measureObjectPool,
	},
	{
		ID:        "stop-timer",
		Title:     "A benchmark that stops its timer inside the loop",
		Published: "3.02 ms → 1.36 ms per 10,000 objects, measured so",
		Measures:  "What StopTimer and StartTimer for each object do to a benchmark: the loops of object-pool with a timer that does what testing.B's does, and timed whole.",
		Source:    poolArticle,
		Command:   claimCommand + "stop-timer",
		Honest: "Such a benchmark measures the timer. It counts time for nothing at all; and both calls read the memory statistics, which stops the world and empties the allocator's caches, " +
			"so that each object is the first after that, and takes 16 bytes instead of 8: those are the published 160 kB. It makes an object many times as dear as it is, and flatters the pool, which does not allocate.",
		measure: measureStopTimer,
	},
	{
		ID:        "pool-across-collections",
		Title:     "What collections cost a pool",
		Published: "993 ms → 1.03 s, 249 kB → 10.6 MB per 10,000 objects with forced collections: the pool loses",
		Measures:  "The loops of object-pool with runtime.GC in them, on Go 1.12, where a collection emptied every sync.Pool.",
		Source:    poolArticle,
		Command:   claimCommand + "pool-across-collections, or go test ./pool -run '^$' -bench 'RatioWithPool|PoolAcrossGC'",
		Honest: "100 µs for each object are the collection: a pool can neither gain nor lose there, except bytes, for sync.Pool makes its arrays anew after each. " +
			"(An object that is made takes 16 bytes here instead of 8, for a collection empties the allocator's caches, too.) " +
			"Since Go 1.13 (commit 2dcbf8b3691e) an item outlives one collection and goes with the second. " +
			"What matters more is that nobody closes what sync.Pool drops. Our pool has nothing to do with collections: it keeps what is used and closes what it drops.",
		measure: measureCollected,
	},
	{
		ID:        "pool-private",
		Title:     "sync.Pool without locks: Get and Put",
		Published: "3.00 ns → 2.21 ns (-26 %)",
		Measures:  "BenchmarkPool on twelve Ps: each puts an item and gets one; the time elapsed divided by what all did. The new figure strayed by 36 %.",
		Source:    stealCommit,
		Command:   claimCommand + "pool-private, or go test ./pool -run '^$' -bench '^BenchmarkPool$|^BenchmarkRatio$/parallel' -cpu 2",
		Honest: "The commit replaced the part that others steal from, which this loop never enters: one item per P lies in the private slot, for which neither version takes a lock. " +
			"Beside it here is the old shape, written anew behind the same interface (\"locked\"): the difference, either way, is smaller than that of one run to the next, which gave from 0.93 to 1.13.",
		measure: measurePool,
	},
	{
		ID:        "pool-overflow",
		Title:     "sync.Pool without locks: beyond the private slot",
		Published: "600 ns → 587 ns (-2.21 %)",
		Measures:  "BenchmarkPoolOverflow on twelve Ps: a hundred Puts, then a hundred Gets; the time elapsed divided by what all did.",
		Source:    stealCommit,
		Command:   claimCommand + "pool-overflow, or go test ./pool -run '^$' -bench 'PoolOverflow|^BenchmarkRatio$/overflow' -cpu 2",
		Honest: "Where each P stays with its own, a mutex is never contended, and a queue without one is no faster: here it is rather slower than the old shape, written anew behind the same interface (\"locked\"). " +
			"It was made for stealing and for the pauses. Our pool takes fewer steps than both: most Gets and Puts touch one array of the P's own.",
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
		Honest: "True, and the best of that commit: what was in proportion to the items became in proportion to the pools. " +
			"What is left of a pause is the runtime's own, so the yardstick here is a program with as many items in a plain slice; each is alone in the heap. Our pool does nothing in a pause, and yet runs of a few rounds gave from 0.84 to 1.51 of the slice's: a pause of 20 µs cannot be told more exactly here. docs/pool.md has longer ones.",
		measure: measurePauses,
	},
	{
		ID:        "pool-expensive-new",
		Title:     "sync.Pool without locks: what it lost",
		Published: "3.14 ms → 3.69 ms (+17.7 %), 33.9 → 40.0 New per operation",
		Measures:  "BenchmarkPoolExpensiveNew on twelve Ps: each takes and gives a hundred items that take a millisecond to make, among garbage. A loss, in the message of the commit itself.",
		Source:    stealCommit,
		Command:   claimCommand + "pool-expensive-new, or go test ./pool -run '^$' -bench PoolExpensiveNew -cpu 2",
		Honest: "The commit after it (2dcbf8b3691e) is the remedy: since then items outlive one collection. " +
			"Neither of the two versions can be had in today's runtime, so here are sync.Pool as it is, and ours, which makes each item once.",
		measure: measureExpensive,
	},
}
