package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/display"
)

// errDirectory is wrapped by the errors of a directory in which another user could put another socket.
var errDirectory = errors.New("not a directory for a private socket")

// ownDirectory returns why this process puts no private socket into a directory: it must be one of this user or of
// root, and no other user may write there.
func ownDirectory(dir string) error {
	return heldBy(dir, uint32(os.Geteuid()))
}

// heldBy returns why a directory is not one of a user, or of root, into which no other user may write.
func heldBy(dir string, uid uint32) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	of, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s: %w: it is a link, or a file", display.Text(dir), errDirectory)
	case !ok || of.Uid != uid && of.Uid != 0:
		return fmt.Errorf("%s: %w: it is one of another user", display.Text(dir), errDirectory)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s: %w: other users may write there: chmod go-w", display.Text(dir), errDirectory)
	}
	return nil
}

// privateCredentials are those for a private socket that was found: its process must be one of root or of this user,
// or of the user to which root has given the directory, as systemd does for a service.
func privateCredentials(bind string) *admin.Credentials {
	as := &admin.Credentials{Known: true}
	dir := filepath.Dir(strings.TrimPrefix(bind, "unix:"))
	info, err := os.Lstat(dir)
	if err != nil || heldBy(filepath.Dir(dir), 0) != nil {
		return as
	}
	if of, ok := info.Sys().(*syscall.Stat_t); ok && heldBy(dir, of.Uid) == nil {
		as.Owner = of.Uid
	}
	return as
}
