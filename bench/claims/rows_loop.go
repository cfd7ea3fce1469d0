package claims

var loopClaims = []*Claim{
	{
		ID:        "event-ring",
		Title:     "A ring in shared memory instead of an eventfd for each event",
		Published: "part of the recipe, without a figure of its own",
		Measures:  "Passing an event from one thread to another.",
		Source:    recipe,
		Command:   claimCommand + "event-ring, or go test ./evring -run '^$' -bench Turns",
		Honest: "The gain is that of batches: no system call is made while the consumer is awake. " +
			"A single event for a sleeping consumer gains nothing, because the ring wakes it by an eventfd too: runs gave from 0.78 to 1.10 of the time of an eventfd alone. " +
			"In the program the ring is the mailbox of each loop: it carries clients between loops, answers of timers and resolvers, and reloads. " +
			"These are single events, a few for a client at most, so its purpose is its bound and its order, and not speed. No byte of a session goes through it.",
		measure: measureRing,
	},
	{
		ID:        "busy-polling",
		Title:     "Polling before going to sleep",
		Published: "part of the recipe, without a figure of its own",
		Measures:  "64 bytes to an echo server on a loop and back, over one connection that waits for each answer.",
		Source:    recipe,
		Command:   claimCommand + "busy-polling, or, with processes of their own, penstock-bench --scenarios echo-64-1 --peers penstock-busy-poll",
		Honest: "It saves the wake of a thread, and only if a processor is free to poll. With many connections, or other work on the machine, it takes CPU from that work (docs/performance.md has 64 connections, where it loses). " +
			"Here both ends are in one process, whose runtime polls as well, so the gain varies more than in separate processes. It is off without --busy-poll.",
		measure: measureBusyPoll,
	},
	{
		ID:        "nagle",
		Title:     "Nagle's algorithm",
		Published: "part of the recipe (TCP_NODELAY), without a figure of its own",
		Measures:  "A question in two pieces of 32 bytes, and its answer of one byte, over loopback.",
		Source:    recipe,
		Command:   claimCommand + "nagle",
		Honest: "The second piece waits until the first is acknowledged, and the acknowledgement waits for an answer that can carry it, some 40 ms (tcp(7), TCP_QUICKACK; net/ipv4/tcp_output.c). " +
			"TCP_NODELAY ends that. So does gathering, because there is no second piece. A program that writes whole messages by one call is never delayed. " +
			"The program sets TCP_NODELAY on both sides of a session: it has no messages of its own to gather.",
		measure: measureNagle,
	},
}

// unexplained is the Source of figures that came without a word on their subject.
const unexplained = "Unknown: only the figures were published."

var laterClaims = []*Claim{
	{
		ID:        "traces",
		Title:     "Traces",
		Published: "for 99.3 % of requests",
		Measures:  "The part of the requests of which there was a trace. Unknown: the load, and the fate of the others.",
		Source:    recipe,
		Command:   "go test ./proxy/test/traces -run '^$' -bench TracesPaired -benchtime 600x",
		Honest: "A share means little without a load and a cost: a slow tracer can trace all requests. " +
			"Here a request is a connection of 64 bytes there and back, 16 at once, as fast as they can, and the collector runs beside them. " +
			"Sampled sessions that have not arrived were dropped and counted: the test fails unless all are accounted for. " +
			"\"again / none\" is another process without traces, so its distance from 1 is the noise. Ratios have the 95 % interval of their median here.",
	},
	{
		ID:        "alerts",
		Title:     "Alerts a day",
		Published: "1,843 → 217",
		Measures:  "Alerts of a day, before and after they were grouped and damped. Unknown: the number of services, and of alerts that mattered.",
		Source:    recipe,
		Command:   "go test ./proxy/test/metrics -run Flapping -v",
		Honest: "Few alerts are easy: send none. A count means something only beside the incidents that were missed, or reported late, because of it. " +
			"Here it is a compressed day of flapping endpoints, through a real Prometheus and a real Alertmanager: of 1,108 alerts, one for each transition, 27 remain (2.4 %), in 30 messages. " +
			"The test fails above 12 %, and if an outage or a flapping endpoint is not reported.",
	},
	{
		ID:        "fault-location",
		Title:     "Where the fault is",
		Published: "92 % right, −68 % time",
		Measures:  "Probably: the share of faults located correctly, and the time for that. Unknown: the faults, and how they were chosen.",
		Source:    recipe,
		Command:   "penstock-bench verdict --seed 2026 --faults 126 --detect 7",
		Honest: "A share of right answers depends on the faults: faults that were chosen to be found are found. " +
			"Here 189 were drawn at random, each with its strength, and \"unknown\" counts as wrong: 187 were right at the session's end, 186 live (98.9 and 98.4 %), with 85 % for the worst cause. " +
			"A running session had the right verdict 1.0 to 2.0 s after the fault began; a TCP check and the error rate noticed none of them within 8 s. The whole matrix is in docs/verdict.md.",
	},
	{
		ID:        "unexplained-latency",
		Title:     "A latency without its subject",
		Published: "−73 %, 89 µs",
		Measures:  "Unknown: a share and a time stand alone.",
		Source:    unexplained,
		Command:   noCommand,
		Honest:    "A figure without a known subject can be neither repeated nor beaten. The row exists so that no published figure is missing; latencies with a known subject have rows of their own.",
		Refused:   "the subject of the figures is unknown",
	},
	{
		ID:        "unexplained-share",
		Title:     "A share, a latency and a rate of errors without their subject",
		Published: "37 %, 83 µs, 0.012 %",
		Measures:  "Unknown: a share, a time and a rate stand alone.",
		Source:    unexplained,
		Command:   noCommand,
		Honest:    "As above. penstock-bench incident and penstock-bench rolling measure the clients that Penstock loses, and their waits, for named failures.",
		Refused:   "the subject of the figures is unknown",
	},
	{
		ID:        "cached-answers",
		Title:     "Answers from a cache when no endpoint can serve",
		Published: "a fallback of the recipe, without a figure",
		Measures:  "Requests that are answered although every endpoint is down.",
		Source:    recipe,
		Command:   noCommand,
		Honest:    "A cache needs a key, a method, and the lifetime of an answer. A stream of bytes has none of them. In its place there is a fallback to another upstream, or to a fixed answer (docs/configuration.md, fallback), and clients that are held until an endpoint serves again (docs/health.md).",
		Refused:   "at layer 4 there is no key for looking up an answer",
	},
}
