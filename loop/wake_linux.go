package loop

import "github.com/penstock/penstock/internal/sys"

// wake makes epoll_wait return. The counter is never read; it is full after 2^64-2
// wake-ups.
func wake(eventfd int) { _, _ = sys.Write(eventfd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }
