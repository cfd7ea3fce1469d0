package sys

import "golang.org/x/sys/unix"

// SO_RCVLOWAT is how many bytes have to be queued before a socket counts as
// readable (socket(7)). It changes what poll says, and epoll, not what recv
// returns.
const SO_RCVLOWAT = unix.SO_RCVLOWAT
