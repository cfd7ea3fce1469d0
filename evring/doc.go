// Package evring passes small events through a ring in shared memory, between
// goroutines, threads and processes: one consumer, one producer or many. Pushing and
// popping are loads and stores; the kernel is asked only when the consumer has said
// that it sleeps, and then by one write to an eventfd.
//
// It is better than an eventfd if events come in batches or have contents: an event takes 0.03 to 0.04
// of the time of an eventfd. It is no better if every event finds the consumer asleep: 1.07 of the
// time. docs/library.md has the measurements.
//
// The memory is a sealed memfd, so that no process can cut it short and have a reader killed
// by SIGBUS. Anything else that a peer writes into it, by malice or because it crashed, makes
// this side report ErrCorrupt, or nothing ready, but never read or write elsewhere, nor loop
// without bound: every shared field is read once, checked, and then used; an event is copied
// out before it is looked at; the number of slots and their size, which cannot change, are
// kept outside.
//
// # The consumer's sleep
//
// A consumer that found nothing calls Sleep, waits on Eventfd if that says so (with an epoll
// of its own, or another poller), and then calls Awake:
//
//	for {
//		ring.Drain(0, handle)
//		timeout := 0
//		if ring.Sleep() {
//			timeout = forever
//		}
//		events := epollWait(timeout)
//		ring.Awake(readable(events, ring.Eventfd()))
//	}
//
// No wake-up is lost. The producer publishes an event and then loads the flag; the
// consumer stores the flag and then loads the slot:
//
//	producer                      consumer
//	store word of the slot   P1   store asleep = ticket    C1
//	load asleep              P2   load word of the slot    C2
//
// If neither saw the other, C1 were after P2 and P1 after C2; with P1 before P2 and
// C1 before C2 that is a circle, and the order of sequentially consistent operations
// has none. So either the consumer finds the event and does not sleep, or the producer
// finds the flag and writes the eventfd. Acquire and release would not do: they let a
// store wait in the processor's buffer while the load after it is done already (x86
// does that), both sides read the old value, and the consumer sleeps with an event in
// its ring. sync/atomic is sequentially consistent (the Go memory model), which on x86
// makes these stores XCHG.
//
// A producer that has written the eventfd takes the flag down, so that the next ones
// need not write too. It writes first: if it dies in between, the others write. And
// it compares with the ticket, a number that each sleep has for its own: if the
// consumer has woken and gone to sleep again meanwhile, that sleep's flag stays up.
//
// Operations on the mapping are invisible to the race detector; programs built with -race get
// the same order through a variable of the Ring, so it sees events through one *Ring within a
// process as ordered.
package evring
