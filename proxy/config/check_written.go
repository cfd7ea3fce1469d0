package config

import (
	"path/filepath"
	"strings"

	"github.com/penstock/penstock/proxy/internal/sessionlog"
	"github.com/penstock/penstock/proxy/sockopt"
)

// A namedFile is a file or socket and the value that names it.
type namedFile struct {
	path string
	key  string // of the value
	at   place  // of the value
}

// A writtenFile is a file or socket that the process makes, appends to or replaces.
type writtenFile struct {
	namedFile
	does string // the beginning of a message
}

// file returns the identity of a path: the same for all that lead to the same file by links. Hard links are
// not compared.
func (f *namedFile) file() string { return sockopt.Address{Network: "unix", Name: f.path}.Place() }

// names records that the current value names a file.
func (d *decoder) names(f *field, path string) {
	if path != "" && !d.trying {
		d.files = append(d.files, namedFile{path, f.key, d.here})
	}
}

// written complains of a file that the process writes and that is named for something else too: a state file
// replaces the key whose path it has, and a session log appends to it.
func (k *checker) written(c *Config) {
	list := k.writtenFiles(c)
	if len(list) == 0 {
		return
	}
	own := make(map[string]*writtenFile, len(list))
	self := make(map[place]bool, len(list))
	for i := range list {
		w := &list[i]
		self[w.at] = w.at.src != nil
		k.included(c, w)
		before := own[w.file()]
		switch {
		case before == nil:
			own[w.file()] = w
		case before.at.src == nil:
			k.namedTwice(before, &w.namedFile)
		default:
			k.namedTwice(w, &before.namedFile)
		}
	}
	for i := range k.files {
		if w := own[k.files[i].file()]; w != nil && !self[k.files[i].at] {
			k.namedTwice(w, &k.files[i])
		}
	}
	k.connectedTo(c, own)
}

// writtenFiles returns the files that the process writes. Sockets that overlap are reported by binds.
func (k *checker) writtenFiles(c *Config) (list []writtenFile) {
	if path := c.StatePath(k.env); path != "" && !k.bad[&c.StateFile] {
		list = append(list, writtenFile{namedFile{path, "state_file", k.places[&c.StateFile]}, "changes by hand would be kept in"})
	}
	if l := c.SessionLog; l != nil && !k.bad[l] && !k.bad[&l.To] {
		if to, err := sessionlog.ParseDestination(l.To); err == nil && to.File() != "" {
			list = append(list, writtenFile{namedFile{to.File(), "to", k.at(&l.To, l)}, "lines of the session log would go to"})
		}
	}
	sockets := make(map[string]bool)
	bind := func(b *Bind) {
		f := namedFile{b.Address.Name, "bind", k.at(b, b)}
		if b.Address.Network == "unix" && !b.Address.Abstract() && !sockets[f.file()] {
			sockets[f.file()] = true
			list = append(list, writtenFile{f, "a socket would be made at"})
		}
	}
	if c.Admin != nil {
		bind(&c.Admin.Bind)
	}
	for _, ln := range c.Listeners {
		for i := range ln.Bind {
			bind(&ln.Bind[i])
		}
	}
	return list
}

// connectedTo complains of files of which one is written and the other is a socket of an endpoint. An endpoint may
// be a listener's socket.
func (k *checker) connectedTo(c *Config, own map[string]*writtenFile) {
	for _, u := range c.Upstreams {
		for i := range u.Endpoints {
			e := &u.Endpoints[i]
			if e.Address.Network != "unix" || e.Address.Abstract() {
				continue
			}
			f := namedFile{e.Address.Name, "address", k.at(&e.Address, e)}
			if w := own[f.file()]; w != nil && w.key != "bind" {
				k.namedTwice(w, &f)
			}
		}
	}
}

// included complains of a written file that is read as configuration.
func (k *checker) included(c *Config, w *writtenFile) {
	for _, path := range c.Files {
		if f := (namedFile{path: path}); f.file() == w.file() {
			k.complainAt(w.at, "write another path", "%s %s, which is a file of the configuration", w.does, w.path)
			return
		}
	}
	for _, pattern := range c.Globs {
		if matches, _ := filepath.Match(pattern, w.path); matches {
			k.complainAt(w.at, "write a path in another directory", "%s %s, which include reads as configuration", w.does, w.path)
			return
		}
	}
}

// namedTwice reports at the place of w, or at that of f if nothing in the configuration names w.
func (k *checker) namedTwice(w *writtenFile, f *namedFile) {
	if w.at.src == nil {
		k.complainAt(f.at, "write another path", "%s %s, the default of state_file, and %s names it too", w.does, w.path, f.key)
		return
	}
	k.complainAt(w.at, "write another path", "%s %s, which %s in %v names too", w.does, w.path, f.key, f.at.pos())
}

// stateName is the name of the file of changes by hand in the directory that systemd makes.
const stateName = "penstock.state"

// StatePath returns the path of the file of changes by hand; "": there is none. env may be nil: no variable is set.
func (c *Config) StatePath(env Env) string {
	if c.StateFile != "" {
		return string(c.StateFile)
	}
	if env == nil {
		return ""
	}
	list, _ := env("STATE_DIRECTORY") // one, or several with colons between (systemd.exec(5))
	if dir, _, _ := strings.Cut(list, ":"); filepath.IsAbs(dir) {
		return filepath.Join(dir, stateName)
	}
	return ""
}
