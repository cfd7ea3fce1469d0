package sys

import "golang.org/x/sys/unix"

// Writev writes the parts one after the other with writev(2), at most IOV_MAX
// (1024) of them. Like write(2) it moves at most MAX_RW_COUNT (0x7ffff000)
// bytes: what is beyond that is a short write and no error (lib/iov_iter.c,
// __import_iovec).
func Writev(fd int, parts [][]byte) (int, error) { return atLeast0(unix.Writev(fd, parts)) }
