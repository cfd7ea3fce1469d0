// Package write measures what it costs to write many pieces of data to one TCP
// connection: by a Write for each, through a bufio.Writer, by net.Buffers, and by
// Penstock's gathered writes (package vecio) on a connection of package net and on
// a loop.
//
// # What is the same for all
//
// A producer has a batch of pieces ready, writes them, and sees to it that all of
// them are with the kernel before it takes the next batch: what is buffered is
// flushed, what was gathered is written. A batch is as many pieces as 64 KiB hold, and
// at least one. The pieces are the same bytes in the same memory for everybody, each
// apart from its neighbours, so that nobody can write two of them as one without
// copying. A message of a header, a payload and a trailer is a batch of three.
//
// Each trial is a process of its own with a connection of its own, which carries an
// unmeasured part first and then as many bytes as in every other trial. It goes to a
// sink, a process that throws away what it receives without copying it (MSG_TRUNC,
// tcp(7)): so what is measured is the sender. That every byte has arrived is checked
// by the sink's count when the trial is over.
//
// # What loopback does not show
//
// Over loopback the kernel copies each byte once, from the sender's memory into
// socket buffers; the receiver's half of TCP runs in the sender's system call, and
// is in its system time. There is no device, no driver and no interrupt, and segments
// have 64 KiB: it is no network card of 100 Gbit/s, and what a connection carries here
// says what calls and copies cost, and nothing of a wire.
package write
