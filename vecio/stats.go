package vecio

// Path is how a writer hands over its bytes.
type Path uint8

const (
	// PathConn: gathered on the descriptor of a connection or a file. Flush waits with the runtime's poller.
	PathConn Path = iota + 1
	// PathSocket: gathered on a borrowed descriptor. Flush never waits.
	PathSocket
	// PathCoalesced: copied together and passed to Write, because the destination is not itself a connection of
	// package net, but for example a wrapper.
	PathCoalesced
)

// String returns "conn", "socket" or "coalesced".
func (p Path) String() string {
	switch p {
	case PathConn:
		return "conn"
	case PathSocket:
		return "socket"
	case PathCoalesced:
		return "coalesced"
	}
	return "none"
}

// Stats are counts since New or Reset.
type Stats struct {
	Path Path

	Pieces      int64 // pieces taken: copied, by reference, or empty
	Copied      int64 // pieces that were copied into our own buffer because they are small, or empty
	CopiedBytes int64
	Refs        int64 // pieces sent by reference
	RefBytes    int64
	Coalesced   int64 // bytes copied together for Write (PathCoalesced), including small pieces a second time

	Written int64 // bytes that the kernel, or Write, has taken
	Calls   int64 // system calls, or Writes
	Short   int64 // calls that took some of the bytes offered, but not all
	Blocked int64 // calls that took nothing for lack of room: EAGAIN
	Retried int64 // calls that a signal interrupted before they took anything: EINTR

	Units  int64 // calls of End
	Early  int64 // times that bytes left before their unit was complete, or to make room, but not because Config.Bound was over
	Corked int64 // times that TCP_CORK was set

	Releases int64 // owned pieces given back
	Waits    int64 // pieces for which a writer waited at the high mark
	Refused  int64 // pieces refused with ErrFull
}

// Stats returns the counts. Like all methods it is not safe for concurrent use.
func (w *Writer) Stats() Stats {
	s := w.stats
	s.Path, s.Pieces, s.Written = w.path, w.taken(), w.written
	s.Copied, s.CopiedBytes = s.Pieces-s.Refs, w.appended+int64(w.filled)-s.RefBytes
	s.Corked = w.cork.corked
	return s
}
