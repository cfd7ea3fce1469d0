package claims

var loopClaims = []*Claim{
	{
		ID:        "event-ring",
		Title:     "A ring in shared memory instead of an eventfd for each event",
		Published: "part of the recipe, without a figure of its own",
		Measures:  "Passing an event from one thread to another.",
		Source:    recipe,
		Command:   claimCommand + "event-ring, or go test ./evring -run '^$' -bench Turns",
		Honest: "The gain is that of batches: nobody asks the kernel while the consumer is awake. " +
			"A single event to a consumer that sleeps gains nothing, for the ring wakes it by an eventfd too: runs gave from 0.78 to 1.10 of the time of an eventfd alone. " +
			"In the program the ring is the mailbox of each loop: a client that is handed from one loop to another, a timer or a resolver's answer from elsewhere, a reload. " +
			"These are single events, a few for a client at most, so it is there for its bound and its order, and not for speed. No byte of a session goes through it.",
		measure: measureRing,
	},
	{
		ID:        "busy-polling",
		Title:     "Polling before going to sleep",
		Published: "part of the recipe, without a figure of its own",
		Measures:  "64 bytes to an echo server on a loop and back, over one connection that waits for each answer.",
		Source:    recipe,
		Command:   claimCommand + "busy-polling, or, with processes of their own, penstock-bench --scenarios echo-64-1 --peers penstock-busy-poll",
		Honest: "What is saved is the waking of a thread, and only where a processor is free to poll: with many connections, or other work on the machine, it takes CPU from those who would use it (docs/performance.md has 64 connections, where it loses). " +
			"Here both ends are in one process, whose runtime polls as well, so the gain strays more than in processes of their own. It is off unless --busy-poll says otherwise.",
		measure: measureBusyPoll,
	},
	{
		ID:        "nagle",
		Title:     "Nagle's algorithm",
		Published: "part of the recipe (TCP_NODELAY), without a figure of its own",
		Measures:  "A question in two pieces of 32 bytes, and its answer of one byte, over loopback.",
		Source:    recipe,
		Command:   claimCommand + "nagle",
		Honest: "The second piece waits until the first is acknowledged, and the acknowledgement waits for up to 40 ms in the hope of an answer to ride on (tcp(7), TCP_QUICKACK; net/ipv4/tcp_output.c). " +
			"TCP_NODELAY ends that, and gathering does so too, for there is no second piece. One who writes whole messages by one call never meets it. " +
			"The program sets TCP_NODELAY on both sides of a session: it has no messages of its own to gather.",
		measure: measureNagle,
	},
}

// unexplained is the Source of figures that came without a word on their subject.
const unexplained = "Not known: they came to us as figures alone."

var laterClaims = []*Claim{
	{
		ID:        "traces",
		Title:     "Traces",
		Published: "for 99.3 % of requests",
		Measures:  "The part of the requests of which there was a trace. Under which load, and what became of the others: not known.",
		Source:    recipe,
		Command:   noCommand,
		Honest: "A part says little without a load and a cost: all requests are traced by what may be slow. " +
			"Ours will be the part that arrived, the part that was dropped and counted, and the CPU per request with tracing and without.",
		Milestone: withTracing,
	},
	{
		ID:        "alerts",
		Title:     "Alerts a day",
		Published: "1,843 → 217",
		Measures:  "Alerts of a day, before and after they were grouped and damped. Of how many services, and how many of them mattered: not known.",
		Source:    recipe,
		Command:   noCommand,
		Honest: "Few alerts are easy: send none. A count says something only beside the incidents that were missed, or reported late, because of it. " +
			"Ours will be the share of what one alert for each transition would send, over a recorded day of flapping endpoints, beside the delay of the first alert.",
		Milestone: withMetrics,
	},
	{
		ID:        "fault-location",
		Title:     "Where the fault is",
		Published: "92 % right, −68 % time",
		Measures:  "It seems: the share of faults whose place was named correctly, and the time to find it. Out of which faults, drawn how: not known.",
		Source:    recipe,
		Command:   noCommand,
		Honest: "A share of right answers depends on the faults: those that were chosen to be found are found. " +
			"Ours will be over faults that are drawn at random, with their strength, with the whole confusion matrix, and \"unknown\" counted as wrong.",
		Milestone: withVerdict,
	},
	{
		ID:        "unexplained-latency",
		Title:     "A latency without its subject",
		Published: "−73 %, 89 µs",
		Measures:  "Not known: a share and a time stand alone.",
		Source:    unexplained,
		Command:   noCommand,
		Honest:    "A figure whose subject is not known can be neither repeated nor beaten. The row is here so that no published figure is missing; the latencies that are known to be of something have rows of their own.",
		Refused:   "nobody knows of what the figures are",
	},
	{
		ID:        "unexplained-share",
		Title:     "A share, a latency and a rate of errors without their subject",
		Published: "37 %, 83 µs, 0.012 %",
		Measures:  "Not known: a share, a time and a rate stand alone.",
		Source:    unexplained,
		Command:   noCommand,
		Honest:    "As above. What Penstock loses of its clients, and how long they wait, is measured with its failures named in penstock-bench incident and penstock-bench rolling.",
		Refused:   "nobody knows of what the figures are",
	},
	{
		ID:        "cached-answers",
		Title:     "Answers from a cache when no endpoint can serve",
		Published: "a fallback of the recipe, without a figure",
		Measures:  "Requests that are answered although every endpoint is down.",
		Source:    recipe,
		Command:   noCommand,
		Honest:    "A cache needs to know what is asked: a key, a method, how long an answer holds. A stream of bytes has none of them. What there is in place of it: fallback to another upstream, or to a fixed answer (docs/configuration.md, fallback), and clients that are held until an endpoint serves again (docs/health.md).",
		Refused:   "at layer 4 there is no key to look an answer up by",
	},
}
