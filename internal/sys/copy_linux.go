package sys

import "golang.org/x/sys/unix"

// CopyFileRange moves at most n bytes between two regular files, each at its own
// position, with copy_file_range(2). 0 and no error is no proof of the end of
// file: some file systems answer it for files that have bytes (BUGS there).
func CopyFileRange(rfd, wfd, n int) (int, error) {
	return atLeast0(unix.CopyFileRange(rfd, nil, wfd, nil, n, 0))
}

// ShutdownWrite passes on the end of file with shutdown(2) SHUT_WR.
func ShutdownWrite(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) }
