package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/sockopt"
)

// A process may listen somewhere else than its file says by now: the file has changed, and is not in force. It
// leaves a note of its address beside private sockets, by the path of its configuration.

// noteName is the name of the note of a configuration's process.
func noteName(path string) string { return strings.TrimSuffix(socketName(path), ".sock") + ".admin" }

// writeNote notes the address of this process, which "" removes. Without a directory for it there is none.
func writeNote(env config.Env, path, address string) error {
	dir, err := privateDirectory(env, serviceDirectory)
	if errors.Is(err, errNoDirectory) {
		return nil
	}
	if err != nil {
		return err
	}
	name := filepath.Join(dir, noteName(path))
	if socket, unix := strings.CutPrefix(address, "unix:"); unix {
		address = "unix:" + absolute(socket)
	}
	if address != "" {
		return file.Write(name, fmt.Appendf(nil, "%s\n%d\n", address, os.Getpid()), 0o644)
	}
	if _, pid := readNote(name); pid != os.Getpid() { // there is none, or it is a successor's
		return nil
	}
	return os.Remove(name)
}

// readNote returns the address and the process of a note; "": there is none.
func readNote(name string) (address string, pid int) {
	text, err := os.ReadFile(name)
	if err != nil {
		return "", 0
	}
	address, number, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	pid, err = strconv.Atoi(number)
	if err != nil || pid <= 0 {
		return "", 0
	}
	return address, pid
}

// elsewhere returns an error that says where the process of a configuration can be asked, or why it cannot be,
// in place of err: that nothing runs where the file says. Without such a process it returns err.
func elsewhere(env config.Env, path string, err error) error {
	if at := listensElsewhere(searched(env), path); at != "" {
		return fmt.Errorf("%s: its process listens elsewhere, by the configuration in force: write --admin %s", display.Text(path), display.Text(at))
	}
	pid, uid := processOf("/proc", path)
	if pid == 0 {
		return err
	}
	if at := listensElsewhere([]string{fmt.Sprintf("/run/user/%d/penstock", uid)}, path); at != "" {
		return fmt.Errorf("%s: its process is another user's: write --admin %s", display.Text(path), display.Text(at))
	}
	return fmt.Errorf("%s: process %d has it, and no admin endpoint that is known here: write there %s, and kill -HUP %[2]d", display.Text(path), pid, display.Text(adminFor(path)))
}

// adminFor is what a configuration needs for an admin socket: in the directory of the service if there is one, or
// else beside the configuration.
func adminFor(path string) string {
	dir := serviceDirectory
	if _, err := os.Stat(dir); err != nil {
		dir = filepath.Dir(absolute(path))
	}
	return fmt.Sprintf("admin: {bind: %q}", "unix:"+filepath.Join(dir, "admin.sock"))
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// listensElsewhere returns the address at which the process of a configuration listens, by what is in those
// directories; "": there is none.
func listensElsewhere(dirs []string, path string) string {
	for _, dir := range dirs {
		if socket := filepath.Join(dir, socketName(path)); listens(socket) {
			return "unix:" + socket
		}
		if at, pid := readNote(filepath.Join(dir, noteName(path))); at != "" && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) && answers(at) {
			return at
		}
	}
	return ""
}

// answers reports whether something listens at an admin address, as far as this user may know.
func answers(address string) bool {
	if socket, unix := strings.CutPrefix(address, "unix:"); unix {
		return listens(socket)
	}
	c, err := sockopt.Dial(context.Background(), &net.Dialer{Timeout: time.Second}, "tcp", address)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// processOf returns a penstock run with a configuration, and its user, as far as this user may see it; 0: there
// is none.
func processOf(proc, path string) (pid int, uid uint32) {
	path = absolute(path)
	for of := range runs(proc) {
		if !hasConfig(of.cwd, of.args, path) {
			continue
		}
		n, _ := strconv.Atoi(filepath.Base(of.dir))
		if info, err := os.Stat(of.dir); err == nil {
			if of, ok := info.Sys().(*syscall.Stat_t); ok {
				return n, of.Uid
			}
		}
	}
	return 0, 0
}

// A runOf is a penstock run: its directory in proc, its current directory, and its arguments after run.
type runOf struct {
	dir, cwd string
	args     []string
}

// runs yields the processes of penstock run that this user may see.
func runs(proc string) iter.Seq[runOf] {
	return func(yield func(runOf) bool) {
		dirs, _ := filepath.Glob(filepath.Join(proc, "[0-9]*"))
		for _, dir := range dirs {
			line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
			args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
			if err != nil || len(args) < 2 || filepath.Base(args[0]) != programName || args[1] != "run" {
				continue
			}
			cwd, err := os.Readlink(filepath.Join(dir, "cwd"))
			if err == nil && !yield(runOf{dir, cwd, args[2:]}) {
				return
			}
		}
	}
}

// others says of which configurations processes with an admin socket run, and where these listen; "": there are none.
func others(env config.Env) string {
	var list []string
	for _, at := range running(env) {
		with := ""
		if path := configOf("/proc", at); path != "" {
			with = " with " + path
		}
		list = append(list, fmt.Sprintf("a process%s listens on %s", with, at))
	}
	return display.Text(strings.Join(list, ", "))
}

// configOf returns the configuration of the process with a private socket, as far as this user may see it: the
// name of the socket is made of its path; "": it is not known.
func configOf(proc, address string) string {
	for of := range runs(proc) {
		for _, arg := range slices.Concat(of.args, defaultConfigs) {
			if path := from(of.cwd, strings.TrimPrefix(arg, "--config=")); socketName(path) == filepath.Base(address) {
				return path
			}
		}
	}
	return ""
}

// from returns the path of a name in a directory.
func from(cwd, name string) string {
	if !filepath.IsAbs(name) {
		name = filepath.Join(cwd, name)
	}
	return filepath.Clean(name)
}

// hasConfig reports whether a penstock run in a directory has the configuration of a path: one of its arguments
// names it, or none names a file, and it is the default one.
func hasConfig(cwd string, args []string, path string) bool {
	for _, arg := range args {
		name := from(cwd, strings.TrimPrefix(arg, "--config="))
		if name == path {
			return true
		}
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			return false
		}
	}
	paths := make([]string, len(defaultConfigs))
	for i, name := range defaultConfigs {
		paths[i] = from(cwd, name)
	}
	return defaultConfig(paths) == path
}
