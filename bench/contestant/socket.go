package contestant

import (
	"os"
	"path/filepath"
)

// longestSocket is the longest path for a unix socket. It is shorter than sun_path (unix(7)), because a new socket
// is bound beside the old one with a longer name.
const longestSocket = 90

// AdminSocket returns a path for the admin API of a process in the process's directory dir. If that would be too
// long for a unix socket, the path is in another directory. The caller calls remove after the process has ended.
func AdminSocket(dir string) (path string, remove func(), err error) {
	if path = filepath.Join(dir, "admin"); len(path) <= longestSocket {
		return path, func() {}, nil
	}
	if dir, err = os.MkdirTemp("/tmp", "penstock-"); err != nil {
		return "", nil, err
	}
	return filepath.Join(dir, "admin"), func() { _ = os.RemoveAll(dir) }, nil
}
