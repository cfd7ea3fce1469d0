package sockopt

import (
	"os"
	"path/filepath"

	"github.com/penstock/penstock/proxy/internal/file"
)

// Place returns the same text for the same unix socket, however its path is written: with links and relative parts, as far
// as they are there now. The socket itself need not be there: it may be made later. While a file system does not answer,
// links are not followed.
func (a Address) Place() string {
	if a.Abstract() {
		return "unix:" + a.Name
	}
	path, err := filepath.Abs(a.Name)
	if err != nil {
		path = filepath.Clean(a.Name)
	}
	real, err := file.Within("the links of "+filepath.Dir(path), func() string {
		links := maxLinks
		return linked(path, &links)
	})
	if err != nil {
		return "unix:" + path
	}
	return "unix:" + real
}

// maxLinks is how many links the kernel follows in a path (include/linux/namei.h, MAXSYMLINKS).
const maxLinks = 40

// linked returns an absolute path without links. It follows at most *links of them.
func linked(path string, links *int) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if path == "/" {
		return path
	}
	dir := linked(filepath.Dir(path), links)
	path = filepath.Join(dir, filepath.Base(path))
	to, err := os.Readlink(path)
	if *links--; err != nil || *links < 0 {
		return path
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(dir, to)
	}
	return linked(to, links)
}
