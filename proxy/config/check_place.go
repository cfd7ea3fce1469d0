package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// isDir reports whether a path is a directory of this machine.
func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// exists reports whether a path exists. If that cannot be found out, it returns true.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// directories warns of sockets in directories that this machine does not have. This is no
// problem: the file may be for another machine, or the directory may be made before the
// process starts.
func (k *checker) directories(c *Config) {
	if c.Admin != nil {
		k.directory(&c.Admin.Bind)
	}
	for _, ln := range c.Listeners {
		for i := range ln.Bind {
			k.directory(&ln.Bind[i])
		}
	}
}

func (k *checker) directory(b *Bind) {
	if b.Address.Network != "unix" || b.Address.Abstract() {
		return
	}
	if dir := filepath.Dir(b.Address.Name); !k.isDir(dir) {
		k.warnAt(k.at(b, b), "make it before penstock run, or write another path", "this machine has no directory %s", dir)
	}
}
