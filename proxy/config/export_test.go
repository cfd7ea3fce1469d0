package config

import (
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/penstock/penstock/internal/topology"
	"github.com/penstock/penstock/proxy/internal/file"
	"go.yaml.in/yaml/v4"
)

var Mend = mend

// A Tree is files by their absolute names.
type Tree map[string]string

func (t Tree) read(path string, most int) ([]byte, error) {
	text, ok := t[path]
	switch {
	case !ok:
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	case len(text) > most:
		return nil, &fs.PathError{Op: "read", Path: path, Err: file.ErrTooLarge}
	}
	return []byte(text), nil
}

func (t Tree) glob(pattern string) (paths []string, err error) {
	for path := range t {
		ok, err := filepath.Match(pattern, path)
		if err != nil {
			return nil, err
		}
		if ok {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// mode returns the mode of a directory unless the path is in the tree, or ends with one of these words. A file has 0640, or 0644 if the
// path ends with public.
func (t Tree) mode(path string) (fs.FileMode, error) {
	_, file := t[path]
	switch name := filepath.Base(path); {
	case name == "none":
		return 0, &fs.PathError{Op: "stat", Path: path, Err: fs.ErrNotExist}
	case name == "hung":
		return 0, &fs.PathError{Op: "stat", Path: path, Err: os.ErrDeadlineExceeded}
	case name == "socket":
		return fs.ModeSocket, nil
	case name == "disk":
		return fs.ModeDevice, nil
	case strings.HasSuffix(path, "public"):
		return 0o644, nil
	case file || strings.HasSuffix(name, ".log"):
		return 0o640, nil
	}
	return fs.ModeDir | 0o750, nil
}

// reaches reports whether ip is this machine's: only 192.0.2.2 is.
func (t Tree) reaches(ip netip.Addr) bool { return ip == netip.MustParseAddr("192.0.2.2") }

// isLocal reports whether addr is this machine's: each is, but 10.9.9.9.
func (t Tree) isLocal(addr netip.Addr) bool { return addr != netip.MustParseAddr("10.9.9.9") }

// cpus are those of a machine with two nodes of four CPUs. Their files cannot be read
// if there is a file /unreadable, and there is no NUMA if there is /flat.
func (t Tree) cpus() (topology.Set, error) {
	if _, bad := t["/unreadable"]; bad {
		return nil, fs.ErrPermission
	}
	return topology.ParseSet("0-7")
}

func (t Tree) nodes() (topology.Set, error) {
	if _, flat := t["/flat"]; flat {
		return nil, topology.ErrNoNUMA
	}
	if _, bad := t["/unreadable"]; bad {
		return nil, fs.ErrPermission
	}
	return topology.ParseSet("0-1")
}

func (t Tree) cpusOf(node int) (topology.Set, error) {
	return topology.ParseSet([]string{"0-3", "4-7"}[node])
}

// controls are those of a kernel that has three, of which an ordinary user may have two. They
// cannot be read if there is a file /unreadable.
func (t Tree) controls() (available, allowed []string, err error) {
	if _, bad := t["/unreadable"]; bad {
		return nil, nil, &fs.PathError{Op: "open", Path: "/proc/c", Err: fs.ErrPermission}
	}
	return []string{"reno", "bbr", "cubic"}, []string{"reno", "bbr"}, nil
}

// control is that of an ordinary user, of the administrator if there is a file /root; no socket is
// to be had if there is one /full.
func (t Tree) control(name string) (string, error) {
	if _, full := t["/full"]; full {
		return "", syscall.EMFILE
	}
	if _, root := t["/root"]; !root {
		return "bbr", syscall.EPERM
	}
	return name, nil
}

func LoadTree(t Tree, path string, env Env) (*Config, []Problem) { return t.loader(env).load(path) }

func LoadTreeKnown(t Tree, path string, env Env) (*Config, []*Unknown, []Problem) {
	l := t.loader(env)
	l.known = true
	cfg, problems := l.load(path)
	return cfg, l.unloaded, problems
}

// NewUnknown is a module of a name that is loaded by a function.
func NewUnknown(name string, load func() error) *Unknown {
	return &Unknown{id: module{name: name}, load: load}
}

// Refused returns how many of the modules a check refuses.
func Refused(modules ...*Unknown) (n int) {
	k := newChecker(new(decoder), new(Config))
	for _, u := range modules {
		if k.loads(u) != nil {
			n++
		}
	}
	return n
}

const MaxModule, MaxModules = maxModule, maxModules

func (t Tree) loader(env Env) *loader {
	l := newLoader(env)
	l.read, l.glob, l.mode, l.isLocal, l.reaches = t.read, t.glob, t.mode, t.isLocal, t.reaches
	l.cpus, l.nodes, l.cpusOf = t.cpus, t.nodes, t.cpusOf
	l.controls, l.control = t.controls, t.control
	return l
}

func AdminBindTree(t Tree, path string, env Env) (*Admin, []Problem) {
	l := newLoader(env)
	l.read, l.glob, l.mode, l.adminOnly = t.read, t.glob, t.mode, true
	l.file(path, place{})
	return l.adminBind()
}

// AdminPlaceTree is AdminPlace with other files than those of the file system.
func AdminPlaceTree(t Tree, path string) (*Admin, []Problem) {
	l := newLoader(func(string) (string, bool) { return "", false })
	l.read, l.glob, l.mode, l.adminOnly, l.bindOnly = t.read, t.glob, t.mode, true, true
	l.file(path, place{})
	return l.adminBind()
}

func Decode(t Tree, path string, env Env) []Problem {
	l := t.loader(env)
	l.file(path, place{})
	return l.problems
}

func ValidateText(text string) error { return validate([]byte(text)) }

// A Key is the description of a key in its tags, for tests.
type Key struct {
	Path, Doc, Default, Example string
	Enum                        []string
	List, Section, Shorthand    bool
	Required                    bool
	Accepts                     func(text string) string // the error in a text
	InBounds                    bool                     // the default is
}

// Keys are all keys of a file, as listeners[].routes[].match.sni.
func Keys() []Key { return root().all("") }

func (o *object) all(path string) (keys []Key) {
	for _, f := range o.fields {
		k := Key{
			Path: path + f.key, Doc: f.doc, Default: f.dflt, Example: f.example, Enum: f.enum, List: f.list, Section: f.obj != nil,
			Required: f.required, InBounds: true,
		}
		if f.form != nil {
			k.Accepts = func(text string) string {
				if c := f.form.set(nil, f, reflect.New(f.typ).Elem(), text); c != nil {
					return c.message
				}
				return ""
			}
			if v := o.template.Field(f.index); len(f.bounds) == 1 && !f.list && f.hasDflt {
				n := number(v)
				k.InBounds = n >= f.bounds[0].lo && n <= f.bounds[0].hi
			}
		}
		if f.obj != nil {
			k.Shorthand = f.obj.shorthand != nil
		}
		keys = append(keys, k)
		if f.obj != nil {
			inner := path + f.key + "."
			if f.list {
				inner = path + f.key + "[]."
			}
			keys = append(keys, f.obj.all(inner)...)
		}
	}
	return keys
}

// Compared returns the number of conditions of a listener's routes that are compared to find
// covered ones.
func Compared(ln *Listener) int {
	k := new(checker)
	k.covered(ln)
	return k.compared
}

// JSON returns the nodes of a text that is JSON, and nil for any other.
func JSON(text string) *yaml.Node {
	s := newSource("x", []byte(text))
	if s.garbage() != nil {
		return nil
	}
	return s.json()
}
