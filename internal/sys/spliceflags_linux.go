package sys

import "golang.org/x/sys/unix"

// SPLICE_F_MOVE asked splice(2) to move pages instead of copying them. It has
// done nothing since Linux 2.6.21 (splice(2)).
const SPLICE_F_MOVE = unix.SPLICE_F_MOVE
