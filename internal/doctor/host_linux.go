package doctor

import (
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// A host is where files of the kernel's are read. A file that is missing or says
// something else than expected is a figure that is not known.
type host struct{ files fs.FS }

// text returns a file without the white space around it.
func (h host) text(path string) (string, bool) {
	b, err := fs.ReadFile(h.files, path)
	return strings.TrimSpace(string(b)), err == nil
}

// number returns the number that a file consists of.
func (h host) number(path string) number {
	n := h.numbers(path)
	if len(n) != 1 {
		return number{}
	}
	return known(n[0])
}

// parameter is number for the file of a kernel parameter, such as net.core.somaxconn.
func (h host) parameter(key string) number {
	return h.number("proc/sys/" + strings.ReplaceAll(key, ".", "/"))
}

// numbers returns the numbers that a file consists of, nil if it holds other text.
func (h host) numbers(path string) (all []int64) {
	text, _ := h.text(path)
	for word := range strings.FieldsSeq(text) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil
		}
		all = append(all, n)
	}
	return all
}

// field returns what follows "name:" in a file of such lines, like
// /proc/self/status.
func (h host) field(path, name string) (string, bool) {
	text, _ := h.text(path)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

// status returns a number of /proc/self/status.
func (h host) status(name string) number {
	text, _ := h.field("proc/self/status", name)
	return parse(text)
}

// contained tells whether this process runs in a container of Docker's, Podman's or
// Kubernetes'.
func (h host) contained() bool {
	for _, path := range []string{".dockerenv", "run/.containerenv"} {
		if _, err := fs.Stat(h.files, path); err == nil {
			return true
		}
	}
	return os.Getenv("container") != "" || os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// namespaced tells whether this process runs in another user namespace than the first,
// of which /proc/self/ns/user says this (PROC_USER_INIT_INO,
// include/linux/proc_ns.h).
func (h host) namespaced() bool {
	namespace, err := fs.ReadLink(h.files, "proc/self/ns/user")
	return err == nil && namespace != "user:[4026531837]"
}

// nowhere is a file system without files, for a process that cannot open any.
type nowhere struct{}

// Open fails.
func (nowhere) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
