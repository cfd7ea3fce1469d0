//go:build unix

package zero

import (
	"syscall"
	"testing"
)

// standard returns the inode numbers of the files 0 to 2.
func standard(t *testing.T) (files [3]uint64) {
	for fd := range files {
		var s syscall.Stat_t
		if err := syscall.Fstat(fd, &s); err != nil {
			t.Fatal(fd, err)
		}
		files[fd] = uint64(s.Ino)
	}
	return files
}
