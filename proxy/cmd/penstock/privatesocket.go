package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
)

// A process whose configuration has no admin address listens at a private unix socket, which commands find: in
// the runtime directory of its service or of its user, or that of the service unit, by the path of its
// configuration.

// serviceDirectory is the runtime directory of the service unit, for commands, which have no variable of it, and
// for root without any, as in a container.
const serviceDirectory = "/run/penstock"

// privateMode is the mode of a private socket of which no group reads.
const privateMode = "?mode=0600"

// errNoDirectory is the reason for which there is no private socket.
var errNoDirectory = errors.New("neither RUNTIME_DIRECTORY nor XDG_RUNTIME_DIR is the directory of this user")

// privateDirectory returns the directory of private sockets of this process, which it makes if necessary. It is
// last, of which no variable is needed, if no variable names one, and this user owns or can make that.
func privateDirectory(env config.Env, last string) (string, error) {
	if list, _ := env("RUNTIME_DIRECTORY"); list != "" {
		dir, _, _ := strings.Cut(list, ":") // systemd.exec(5)
		return dir, nil
	}
	dir, ok := userDirectory(env)
	if !ok {
		if err := makeOwn(last); err != nil {
			return "", fmt.Errorf("%w, and %w", errNoDirectory, err)
		}
		return last, nil
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return dir, nil
}

// makeOwn makes a directory for this user alone, unless there is one of this user.
func makeOwn(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || !own(info) {
		return fmt.Errorf("%s is not a directory of this user", dir)
	}
	return nil
}

// own reports whether a file is this user's.
func own(info os.FileInfo) bool {
	of, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(of.Uid) == os.Geteuid()
}

// userDirectory returns the directory of the private sockets of this user. That of another user, who could put
// another socket in its place, is none.
func userDirectory(env config.Env) (dir string, ok bool) {
	runtime, _ := env("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(runtime) {
		return "", false
	}
	info, err := os.Stat(runtime)
	if err != nil {
		return "", false
	}
	return filepath.Join(runtime, "penstock"), own(info)
}

// searched are the directories in which commands look for private sockets.
func searched(env config.Env) (dirs []string) {
	if list, _ := env("RUNTIME_DIRECTORY"); list != "" {
		dirs = strings.Split(list, ":")
	}
	dirs = append(dirs, serviceDirectory)
	if dir, ok := userDirectory(env); ok {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// socketName is the name of the private socket of the process with a configuration: the beginning of the
// name of that file, and a hash of its path.
func socketName(path string) string {
	path = absolute(path)
	keep := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return -1
	}
	base := strings.Map(keep, strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)))
	sum := sha256.Sum256([]byte(path))
	return fmt.Sprintf("%.20s-%x.sock", base, sum[:4])
}

// privateAddress returns the admin address of a process with a configuration that names none.
func privateAddress(env config.Env, path string) (string, error) {
	dir, err := privateDirectory(env, serviceDirectory)
	if err == nil {
		err = ownDirectory(dir)
	}
	if err != nil {
		return "", err
	}
	bind := "unix:" + filepath.Join(dir, socketName(path))
	_, err = admin.ParseAddress(bind)
	return bind, err
}

// privateOf returns the address of the private socket of the process with a configuration, whether the file can be
// read or not, and is there or not; "": none was found. The path may lead to the one of the process by links.
func privateOf(env config.Env, path string) string {
	for _, dir := range searched(env) {
		for _, name := range pathsOf(path) {
			if socket := filepath.Join(dir, socketName(name)); listens(socket) {
				return "unix:" + socket
			}
		}
	}
	return ""
}

// pathsOf returns a path, and the paths that it leads to by links: of the directory, of the file, of both.
func pathsOf(path string) []string {
	list := []string{path}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		list = append(list, filepath.Join(dir, filepath.Base(path)))
	}
	for at := path; len(list) < maxLinks; {
		to, err := os.Readlink(at)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(at), to)
		}
		at = to
		list = append(list, at)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		list = append(list, real)
	}
	return list
}

// maxLinks is how many links of a path are followed, as by the kernel (path_resolution(7)).
const maxLinks = 40

// findPrivate returns the address of the process with a configuration. The error wraps
// [admin.ErrNotRunning], and names the processes that run.
func findPrivate(env config.Env, path string) (string, error) {
	if bind := privateOf(env, path); bind != "" {
		return bind, nil
	}
	why, run := "it names no admin address", others(env)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		why = "there is no such file"
	}
	if run != "" {
		run = ": " + run
	}
	return "", fmt.Errorf("%s: %w: %s, and no process of this user has it%s", display.Text(path), admin.ErrNotRunning, why, run)
}

// running returns the addresses of all processes with a private socket, or with one by the usual name.
func running(env config.Env) (list []string) {
	for _, dir := range searched(env) {
		found, _ := filepath.Glob(filepath.Join(dir, "*-????????.sock"))
		for _, socket := range append(found, filepath.Join(dir, "admin.sock")) {
			if listens(socket) {
				list = append(list, "unix:"+socket)
			}
		}
	}
	return list
}

// adminFlagsOf returns the flags for the addresses of processes; "": there are none.
func adminFlagsOf(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return "--admin " + strings.Join(list, ", or --admin ")
}

// listens reports whether a process listens at a unix socket, as far as this user may know.
func listens(socket string) bool {
	if _, err := os.Lstat(socket); err != nil { // in a directory that this user may not look into there is none for it
		return false
	}
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EAGAIN)
	}
	c.Close()
	return true
}
