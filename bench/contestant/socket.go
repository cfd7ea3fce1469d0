package contestant

import (
	"os"
	"path/filepath"
)

// longestSocket is the longest path of a unix socket (sun_path, unix(7)), less the addition for
// binding a new one beside it.
const longestSocket = 90

// AdminSocket returns the path of the admin API of a process that has a directory of its own. If
// that would be too long for a unix socket, it is in another directory, which remove removes, after
// the process has ended.
func AdminSocket(dir string) (path string, remove func(), err error) {
	if path = filepath.Join(dir, "admin"); len(path) <= longestSocket {
		return path, func() {}, nil
	}
	if dir, err = os.MkdirTemp("/tmp", "penstock-"); err != nil {
		return "", nil, err
	}
	return filepath.Join(dir, "admin"), func() { _ = os.RemoveAll(dir) }, nil
}
