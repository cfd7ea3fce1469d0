package claims

// recipe is where the figures about whole proxies come from. They are all that
// is known of how they were measured.
const recipe = "A recipe for fast proxies in Go (epoll, unsafe slices, iovec, rings, huge pages, tracing)."

var trafficClaims = []*Claim{
	{
		ID:        "one-connection",
		Title:     "One connection, spliced instead of copied",
		Published: "1.3 → 8.2 Gbit/s, 125 k → 8.3 k system calls/s, 42 % → 19 % user CPU",
		Measures:  "A stream through a proxy. Unknown: the buffers, the network, the total CPU.",
		Source:    recipe,
		Command:   claimCommand + "one-connection, or, with processes of their own, penstock-bench --scenarios bulk-1",
		Honest: "1.3 Gbit/s in 125 k calls are 1,300 bytes a call, 8.2 in 8.3 k are 123 kB: the comparison is above all one of a small buffer with a large pipe. " +
			"So here copying runs with a buffer of 2,600 bytes, which makes such calls, and with one of 64 KiB, which has most of the gain without splice. " +
			"And copying is the kernel's work, system time; the user's CPU was spent on something else. The relevant figure is all CPU per GB. " +
			"Besides, most kernels estimate how CPU time splits into user and system: they sample once a tick (CONFIG_TICK_CPU_ACCOUNTING), a few hundred times in this second, so the figures are whole percents at best. " +
			"Here all is in one process; the moving thread's own time; sockets block, so that nothing else makes calls.",
		measure: measureConnection,
	},
	{
		ID:        "gathered-writes",
		Title:     "One connection, pieces gathered instead of written one by one",
		Published: "1.3 → 8.2 Gbit/s, 125 k → 8.3 k system calls/s, 42 % → 19 % user CPU",
		Measures:  "The same figures as one-connection's, read as those of a writer: 125,000 pieces of 1,300 bytes a second are 1.3 Gbit/s.",
		Source:    recipe,
		Command:   claimCommand + "gathered-writes, or, with processes of their own, penstock-bench write",
		Honest: "Here pieces of 1,300 bytes go over loopback, each by a Write of its own, or 50 by one call; the receiver throws them away. This saves calls and small segments; " +
			"the kernel copies every byte into socket buffers either way. bufio.Writer and net.Buffers have as much of the gain: the table of docs/performance.md has the difference to gathered writes. " +
			"Loopback is no network card of 100 Gbit/s. User CPU is in ticks, as in one-connection, whole percents at best; a Write that finds no room makes one more call, which only penstock-bench write counts.",
		measure: measureWrites,
	},
	{
		ID:        "gathered-references",
		Title:     "One connection, pieces gathered by reference",
		Published: "1.3 → 8.2 Gbit/s, 125 k → 8.3 k system calls/s, 42 % → 19 % user CPU",
		Measures:  "The same figures again, read as those of a writer that passes memory without copying it.",
		Source:    recipe,
		Command:   claimCommand + "gathered-references, or, with processes of their own, penstock-bench write",
		Honest: "In gathered-writes the pieces are below 2 KiB, and the writer copies them together before its call, for that costs less than an entry of the vector. " +
			"Here they have 4,096 bytes and go by reference, 16 by one call: the writer copies nothing, and the kernel every byte, as it does for any write. " +
			"The gain is smaller than with small pieces, for a Write of 4,096 bytes is less of a waste.",
		measure: measureReferences,
	},
	{
		ID:        "ten-thousand-connections",
		Title:     "Event loops instead of goroutines",
		Published: "24,800 → 1,920 system calls/s, 12.7 ms → 3.1 ms, over 10,000 connections",
		Measures:  "Goroutines against epoll loops, by the system calls and a latency. Unknown: the requests per second.",
		Source:    recipe,
		Command:   "penstock-bench switches",
		Honest: "1,920 calls a second over 10,000 connections are one call for each in five seconds: they were idle, or not all calls were counted. " +
			"Likewise a mean of 12.7 ms over 10,000 connections that all wait for an answer would be 787,000 requests a second (Little's law), which no server serves with 24,800 calls. " +
			"Calls per second say nothing without requests per second; a loop that serves fewer makes fewer. Ours come with them. " +
			"Here all connections are active: 64 bytes go to an echo server in a process of its own and back, then again, so that the latency is queueing, the same for all of a throughput. The load takes its share of the machine. " +
			"The command also has Penstock's loops (docs/loop.md) in turns with the two; a run that was recorded without them has no figures of theirs.",
	},
	{
		ID:        "slice-headers",
		Title:     "Slice headers instead of arrays",
		Published: "127 / 9 / 3 collections, 2.1 / 1.8 / 0.4 GiB, 38 / 62 / 11 % fragmentation",
		Measures:  "Probably: buffers made each time, arrays from a pool, and slice headers over separate memory. Unknown: the load, and the meaning of fragmentation.",
		Source:    recipe,
		Command:   claimCommand + "slice-headers",
		Honest: "Reusing memory saves collections, and arrays do that as well as headers. " +
			"Headers save room: an array always has the size of the largest message, a header points to a buffer of a fitting class. " +
			"Here 20,000 messages of 1 B to 64 KiB, 64 at a time; for fragmentation, the share of memory that no message fills; the memory of a message that is made is that of the allocator's size class. " +
			"The first three are in the collector's heap. Penstock's own slots are not, and are addressed by number (docs/arena.md): collections ignore them, and to a cache they are ordinary memory. " +
			"The remaining allocation with headers is the benchmark's own, a function that returns each message. " +
			"Gathered writes pool the headers, never the memory behind them (docs/vecio.md).",
		measure: measureHeaders,
	},
	{
		ID:        "million-connections",
		Title:     "A million connections in 64 MB",
		Published: "64 MB and 9.3 µs against 1.2 GB and 42 µs",
		Measures:  "Memory of a million connections, and a latency. Unknown: the kind of memory, and the share of active connections.",
		Source:    recipe,
		Command:   claimCommand + "million-connections, or, with processes of their own, penstock-bench idle",
		Honest: "64 MiB are 67 bytes for each. No goroutine fits in, no buffer, and not the kernel's socket, which takes kilobytes and can be in neither figure. " +
			"So it can only mean that an idle connection owns no memory of the process but an entry in a table, which is the right goal. " +
			"1.2 GB, on the other side, is less than half of the memory of a million waiting goroutines. " +
			"The row has a session on goroutines; on Penstock's loops, which are the program's default, an idle one has neither goroutine nor buffer, and its struct takes less than 300 bytes (docs/relay.md). " +
			"penstock-bench idle has both in processes of their own, with the latency of messages over a few of them while the others are idle, and drives a million simulated ones.",
		measure: measureIdle,
	},
}

var callClaims = []*Claim{
	{
		ID:        "one-call",
		Title:     "Header, payload and trailer in one call",
		Published: "one call instead of three, without copying",
		Measures:  "writev(2) of three parts against three times write(2).",
		Source:    recipe,
		Command:   claimCommand + "one-call",
		Honest: "writev saves two calls, and does not avoid the copy into the kernel, which has ended when it returns: later changes of the parts do not arrive. " +
			"(With splice and MSG_ZEROCOPY they do; that is their price.) Splitting the same bytes into more parts takes no less time either. " +
			"Penstock's own messages go by one call too, and its writer does copy the small parts, here 80 bytes of 4,176: below two kibibytes that costs less than an entry of the vector (docs/vecio.md). " +
			"Here a message of 64 + 4,096 + 16 bytes through a unix socket, the reading of it included; penstock-bench write has one of 16 KiB over TCP.",
		measure: measureGathered,
	},
	{
		ID:        "iovec-limit",
		Title:     "An iovec longer than 0x7ffff000 bytes",
		Published: "fails with EINVAL",
		Measures:  "The result of writev(2) for more bytes than one call moves (MAX_RW_COUNT).",
		Source:    recipe,
		Command:   claimCommand + "iovec-limit",
		Honest: "It is a short write of 0x7ffff000 bytes and no error, in one iovec or in several (lib/iov_iter.c, __import_iovec). " +
			"EINVAL is for a length that is negative as a signed number and for more than 1,024 iovecs. So code has to continue after a short write, as always, and need not split iovecs.",
		measure: measureLimit,
	},
	{
		ID:        "splice-move",
		Title:     "SPLICE_F_MOVE",
		Published: "makes splice move pages instead of copying them",
		Measures:  "splice(2) with the flag and without it: 64 KiB from a file to a socket, and to another file.",
		Source:    recipe,
		Command:   claimCommand + "splice-move",
		Honest:    "It has done nothing since Linux 2.6.21 (splice(2)), except into /dev/fuse, which takes whole pages over if it can (fs/fuse/dev.c, fuse_dev_splice_write). Penstock moves bytes between sockets and does not set it.",
		measure:   measureMove,
	},
}
