// Package write measures the cost of writing many pieces of data to one TCP connection. The
// ways are a Write for each, a bufio.Writer, net.Buffers, and Penstock's gathered writes
// (package vecio) on a connection of package net and on a loop.
//
// # Common conditions
//
// A producer has a batch of pieces ready and writes them. All of them are with the kernel
// before it takes the next batch: buffered bytes are flushed, gathered pieces are written. A
// batch is as many pieces as 64 KiB hold, and at least one. The pieces are the same bytes in
// the same memory for all ways, each apart from its neighbours. So no way can write two of
// them as one without copying. A message of a header, a payload and a trailer is a batch of
// three.
//
// Each trial is a process of its own with a connection of its own. The connection carries an
// unmeasured part first and then as many bytes as in every other trial. It goes to a sink, a
// process that throws away the received bytes without copying them (MSG_TRUNC, tcp(7)). So the
// sender is measured. When the trial is over, the sink's count shows that every byte has
// arrived.
//
// # Limits of loopback
//
// Over loopback the kernel copies each byte once, from the sender's memory into socket
// buffers; the receiver's half of TCP runs in the sender's system call, and is in its system
// time. There is no device, no driver and no interrupt, and segments have 64 KiB. It is no
// network card of 100 Gbit/s: the throughput of a connection shows the cost of calls and
// copies here, and nothing of a wire.
package write
