// Package evring passes small events through a ring in shared memory, between
// goroutines, threads and processes: one consumer, one producer or many. Pushing and
// popping are loads and stores; the kernel is asked only when the consumer has said
// that it sleeps, and then by one write to an eventfd.
//
// It is better than an eventfd if events come in batches (an event takes 0.03 to 0.04 of an eventfd's time) or
// have contents. It is no better if every event finds the consumer asleep: 1.07 of the time. docs/library.md has
// the measurements.
//
// The memory is a sealed memfd, so that no process can cut it short and have a reader killed by SIGBUS.
// Whatever else a peer writes into it, out of malice or because it crashed, this side reports ErrCorrupt, or
// nothing ready, but never reads or writes elsewhere, nor loops without bound: it reads every shared field
// once, checks it, and then uses it; it copies an event out before it looks at it; and it keeps its own copy of
// the number and size of the slots, which cannot change.
//
// # The consumer's sleep
//
// A consumer that found nothing calls Sleep, waits on Eventfd if Sleep allows it (with its own epoll, or
// another poller), and then calls Awake:
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
// If neither saw the other, C1 would be after P2 and P1 after C2; with P1 before P2 and C1 before C2 that is a
// circle, which the order of sequentially consistent operations cannot have. So either the consumer finds the
// event and does not sleep, or the producer finds the flag and writes the eventfd. Acquire and release would
// not be enough: they let a store wait in the processor's buffer while the load after it is already done (x86
// does that); then both sides read the old value, and the consumer sleeps with an event in its ring.
// sync/atomic is sequentially consistent (the Go memory model), which on x86 makes these stores XCHG.
//
// A producer that has written the eventfd clears the flag, so that the next producers need not write too. It
// writes first: if it dies in between, the others write. And it compares the flag with the ticket, a number
// that differs in each sleep: if the consumer has woken and gone to sleep again meanwhile, the flag of the new
// sleep stays.
//
// The race detector does not see operations on the mapping. Programs built with -race get the same order
// through a variable of the Ring, so the detector sees events through one *Ring within a process as ordered.
package evring
