package vecio

// Path is the way the bytes of a writer take.
type Path uint8

const (
	// PathConn: gathered on the descriptor of a connection or a file, waiting with the
	// runtime's poller.
	PathConn Path = iota + 1
	// PathSocket: gathered on a borrowed descriptor, never waiting.
	PathSocket
	// PathCoalesced: copied together and handed to Write, because the destination is
	// not itself a connection of package net, but for example a wrapper.
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

	Pieces      int64 // taken: copied, by reference, and empty ones
	Copied      int64 // pieces that were copied into a buffer of ours because they are small, also empty ones
	CopiedBytes int64
	Refs        int64 // pieces that went by reference
	RefBytes    int64
	Coalesced   int64 // bytes that were copied together for Write (PathCoalesced), small pieces again

	Written int64 // bytes that are with the kernel, or that Write has taken
	Calls   int64 // system calls, or Writes, that were made
	Short   int64 // calls that took some, but less than was offered
	Blocked int64 // calls that took nothing because there was no room: EAGAIN
	Retried int64 // calls that a signal interrupted before they had taken anything: EINTR

	Units  int64 // calls of End
	Early  int64 // times that bytes left before their unit was complete
	Corked int64 // times that TCP_CORK was set for that

	Releases int64 // owned pieces given back
	Waits    int64 // pieces for which a writer waited at the high mark
	Refused  int64 // pieces refused with ErrFull
}

// Stats returns the counts. Like all methods it is not for concurrent use.
func (w *Writer) Stats() Stats {
	s := w.stats
	s.Path, s.Pieces, s.Written = w.path, w.taken(), w.written
	s.Copied, s.CopiedBytes = s.Pieces-s.Refs, w.appended+int64(w.filled)-s.RefBytes
	s.Corked = w.cork.corked
	return s
}
