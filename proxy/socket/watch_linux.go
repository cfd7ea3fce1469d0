package socket

import "github.com/penstock/penstock/internal/sys"

// hasGone reports whether a peer will neither take nor give anything any more. That of a TCP
// connection which was closed is like one that only sends no more (tcp(7)).
func hasGone(fd int) bool {
	events, err := sys.Poll(fd, 0)
	switch {
	case err != nil:
		return false // EINTR: nothing was there to be told of yet (fs/select.c, do_poll)
	case events&sys.POLLERR != 0:
		return true
	case events&sys.POLLHUP == 0:
		return false
	}
	queued, err := sys.FIONREAD(fd)
	return err == nil && queued == 0
}
