package loop

import (
	"encoding/binary"

	"github.com/penstock/penstock/internal/sys"
)

// wake makes epoll_wait return. The counter is never read; it is full after 2^64-2
// wake-ups.
func wake(eventfd int) {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = sys.Write(eventfd, one[:])
}
