package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/penstock/penstock/internal/topology"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/sockopt"
	"go.yaml.in/yaml/v4"
)

// An Env looks up an environment variable, as [os.LookupEnv] does.
type Env func(name string) (value string, ok bool)

// Load reads and checks a file and all files that it includes. If there are errors, it returns
// every problem in the order of the files and their lines, and a nil Config. Otherwise the
// Config has the warnings.
//
// From the file system it reads only these files, the files named by file: and respond, and
// certificates.
func Load(path string, env Env) (*Config, []Problem) {
	l := newLoader(env)
	return l.load(path)
}

// LoadKnown is [Load] for callers who may only look: it loads no WebAssembly modules. If this process has not loaded a
// module yet, LoadKnown assumes that the module is valid, and returns it. If there are any, the result is not final:
// load them, and read the file again.
func LoadKnown(path string, env Env) (*Config, []*Unknown, []Problem) {
	l := newLoader(env)
	l.known = true
	cfg, problems := l.load(path)
	return cfg, l.unloaded, problems
}

func (l *loader) load(path string) (*Config, []Problem) {
	l.record(path)
	l.file(path, place{})
	return l.finish()
}

// Parse is [Load] for a text instead of a file; name stands for the file in problems. The Config has no Files unless
// the text names some.
func Parse(name string, text []byte, env Env) (*Config, []Problem) {
	l := newLoader(env)
	l.names = append(l.names, name)
	l.src = newSource(name, text)
	l.document()
	return l.finish()
}

// A loader reads files into one Config.
type loader struct {
	decoder
	cfg     Config
	names   []string        // of the files as the user wrote them, in order
	visited map[string]bool // the same, absolute
	within  []string        // absolute names of the files being read, outermost first
	bytes   int
	twice   bool // a section is in more than one file
	// rest are the paths that match an absolute pattern of include and are still to be read: each pattern is matched once,
	// however many files have it.
	rest     map[string][]string
	includes int  // the cost of matching so far
	tooMany  bool // no further file is read
	glob     func(pattern string) ([]string, error)

	recorded *reading // nil if nothing is recorded
}

func newLoader(env Env) *loader {
	l := &loader{visited: make(map[string]bool), rest: make(map[string][]string), glob: file.Glob}
	l.env, l.read, l.mode, l.isLocal, l.reaches = env, file.Read, fileMode, isLocal, sockopt.Local()
	l.cpus, l.nodes, l.cpusOf = topology.CPUs, topology.Nodes, topology.CPUsOf
	l.controls, l.control = sockopt.Congestions, sockopt.TryCongestion
	l.places, l.bad, l.strange = make(map[any]place), make(map[any]bool), make(map[any]bool)
	root().fill(reflect.ValueOf(&l.cfg).Elem())
	return l
}

// file reads a file that was named at a place. The first file has no place.
func (l *loader) file(path string, named place) {
	abs := absolute(path)
	if l.visited[abs] || l.tooMany {
		return
	}
	l.visited[abs] = true
	data, err := l.read(path, maxFile)
	l.bytes += len(data)
	switch {
	case err != nil:
		if named.src == nil {
			named = place{src: &source{name: path}}
			if errors.Is(err, fs.ErrNotExist) {
				l.complainAt(named, "", "no such file")
				l.partial = true
				return
			}
			err = fmt.Errorf("cannot be read: %w", pathless(err))
		}
		l.complainAt(named, mend(err, maxFile), "%v", err)
		l.partial = true
		return
	case len(l.visited) > maxFiles || l.bytes > maxAll:
		l.partial, l.tooMany = true, true
		l.complainAt(named, "include fewer files", "there are more than %d files, or more than %s in all", maxFiles, showSize(maxAll))
		return
	}
	l.cfg.Files = append(l.cfg.Files, abs)
	l.names = append(l.names, path)
	l.within = append(l.within, abs)
	defer func() { l.within = l.within[:len(l.within)-1] }()
	outer := l.src
	l.src = newSource(path, data)
	if len(l.places) == 0 {
		l.places = make(map[any]place, len(data)/12)
	}
	l.document()
	l.src = outer
}

// pathless returns err without the path, for messages that already have it.
func pathless(err error) error {
	if e, ok := err.(interface{ Unwrap() error }); ok && e.Unwrap() != nil {
		return e.Unwrap()
	}
	return err
}

// document reads the values of l.src.
func (l *loader) document() {
	n, problem := l.src.parse()
	l.conceal(problem)
	switch {
	case problem != nil && l.adminOnly && l.salvage():
		l.problems = append(l.problems, *problem)
		l.partial = true
		return
	case n != nil && (n.Kind == yaml.MappingNode && known(n) || n.Kind == yaml.AliasNode):
	case (problem != nil || n != nil) && l.foreign():
		l.partial = true
		return
	case problem != nil:
		l.problems = append(l.problems, *problem)
		l.partial = true
		return
	case n == nil:
		return
	case n.Kind != yaml.MappingNode:
		l.noMapping(n)
		l.partial = true
		return
	}
	l.sections(n)
}

func (l *loader) sections(n *yaml.Node) {
	var part Config
	root().fill(reflect.ValueOf(&part).Elem())
	l.object("a file", root(), reflect.ValueOf(&part).Elem(), n)
	l.partial = l.partial || l.bad[&part] || l.bad[&part.Upstreams] || l.bad[&part.Include]
	l.add(&part)
	l.include(&part)
}

// add adds the content of a file to the content of the others. Lists are joined. Any other key may be in only one file.
func (l *loader) add(part *Config) {
	from, to := reflect.ValueOf(part).Elem(), reflect.ValueOf(&l.cfg).Elem()
	for _, f := range root().fields {
		switch a, b := from.Field(f.index), to.Field(f.index); {
		case f.once:
		case f.list:
			b.Set(reflect.AppendSlice(b, a))
		case l.given(a.Addr().Interface()):
			if before, ok := l.places[b.Addr().Interface()]; ok {
				l.twice = true
				l.complainAt(l.places[a.Addr().Interface()], "leave it out in one of the places", "%s is also in %v", f.key, before.pos())
			}
			b.Set(a)
			l.moved(f, a, b)
		}
	}
}

// moved records the new place of a copied value, and of the values in it that are not behind a pointer.
func (l *loader) moved(f *field, a, b reflect.Value) {
	from, to := a.Addr().Interface(), b.Addr().Interface()
	if at, given := l.places[from]; given {
		l.places[to] = at
	}
	if l.bad[from] {
		l.bad[to] = true
	}
	if f.obj != nil && !f.optional && !f.list {
		for _, inner := range f.obj.fields {
			l.moved(inner, a.Field(inner.index), b.Field(inner.index))
		}
	}
}

func (l *loader) finish() (*Config, []Problem) {
	l.laneDefault()
	l.cfg.reading, l.recorded = l.recorded, nil
	if len(l.names) > 0 && l.memory <= maxMemory {
		l.check()
	}
	if len(l.problems) == 0 {
		l.cfg.Files = append(l.cfg.Files, l.named...)
		l.cfg.Warnings = sorted(l.warnings, l.names)
		cfg := l.cfg // a copy: a pointer into the loader would keep all of it in memory
		return &cfg, nil
	}
	return nil, l.found()
}

func (l *loader) found() []Problem {
	problems := sorted(l.problems, l.names)
	if l.dropped > 0 {
		problems = append(problems, Problem{Message: fmt.Sprintf("and %d more", l.dropped)})
	}
	return problems
}

// special are the characters that make a name a pattern.
const special = `*?[\`

func (l *loader) include(part *Config) {
	for i := range part.Include {
		pattern, at := part.Include[i], l.places[&part.Include[i]]
		if pattern == "" {
			if l.partial = l.partial || l.bad[&part.Include[i]]; !l.bad[&part.Include[i]] {
				l.complainAt(at, "write conf.d/*.yaml, or leave it out", "the name of the file to include is empty")
			}
			continue
		}
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(l.src.name), pattern)
		}
		l.includes++
		abs := absolute(pattern)
		switch _, again := l.rest[abs]; {
		case l.tooMany:
			return
		case l.includes > maxIncludes:
			l.partial, l.tooMany = true, true
			l.complainAt(at, "include fewer files by fewer patterns", "the files include too many names and patterns")
			return
		case !again:
			l.cfg.Globs = append(l.cfg.Globs, abs)
			l.rest[abs] = l.matching(pattern, part.Include[i], at)
			l.includes += len(l.rest[abs])
		case !strings.ContainsAny(pattern, special):
			l.circle(pattern, at)
		}
		for len(l.rest[abs]) > 0 { // an included file may have the same pattern, and go on with the rest
			path := l.rest[abs][0]
			l.rest[abs] = l.rest[abs][1:]
			l.file(path, at)
		}
	}
}

// circle warns of a file that includes itself, or a file that includes it.
func (l *loader) circle(path string, at place) {
	switch slices.Index(l.within, absolute(path)) {
	case -1:
	case len(l.within) - 1:
		l.warnAt(at, "leave it out", "this file includes itself, which adds nothing")
	default:
		l.warnAt(at, "leave it out", "%s includes this file already, so this adds nothing", path)
	}
}

// matching returns the files that match a pattern, in order. at is where the pattern was written.
func (l *loader) matching(pattern, written string, at place) []string {
	if strings.ContainsAny(filepath.Dir(pattern), special) {
		l.partial = true
		l.complainAt(at, "write conf.d/*.yaml", "the directory in %q must not be a pattern", written)
		return nil
	}
	paths, err := l.glob(pattern)
	plain := !strings.ContainsAny(pattern, special)
	if !plain {
		l.includes += perPattern
	}
	l.partial = l.partial || err != nil || len(paths) == 0 && plain
	switch {
	case errors.Is(err, filepath.ErrBadPattern):
		l.complainAt(at, `write conf.d/*.yaml, with \ before a special character`, "%q is not a pattern", written)
	case err != nil:
		l.complainAt(at, mend(err, maxFile), "%v", err)
	case len(paths) == 0 && plain:
		l.complainAt(at, "use the name of an existing file, or a pattern", "there is no file %s", pattern)
	case plain && l.look(pattern).dir:
		l.partial = true
		l.complainAt(at, "write "+filepath.Join(written, "*.yaml"), "%s is a directory", pattern)
		return nil
	case plain:
		l.circle(pattern, at)
	case !l.others(paths):
		l.unmatched(pattern, written, at)
	}
	slices.Sort(paths)
	return paths
}

// others reports whether paths has a file other than the one being read.
func (l *loader) others(paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool { return absolute(path) != l.within[len(l.within)-1] })
}

// unmatched warns of a pattern that matches no other file. It does not warn if the directory has no other files: it
// may be a place for future files.
func (l *loader) unmatched(pattern, written string, at place) {
	dir := filepath.Dir(pattern)
	all, err := l.glob(filepath.Join(dir, "*"))
	switch {
	case l.look(dir).noDir:
		l.warnAt(at, "make the directory, write another directory, or leave it out", "there is no directory %s", dir)
	case err == nil && l.others(all):
		l.warnAt(at, "write a pattern that matches the names of files, or leave it out", "%s matches no other file", written)
	}
}

// absolute returns the same path for the same file, however it is written. It does not follow links.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// asked matches the first line of a section that has the admin address, or names other files that may have it.
var asked = regexp.MustCompile(`^["']?(admin|include)["']?[ \t]*:\s`)

// salvage reads the admin and include sections of l.src if the file as a whole is not YAML. It reads each section
// that is valid YAML by itself and occurs once, and reports whether it has read any.
//
// A line within unclosed quotes does not begin a section, and neither does a line of a file in braces. So an admin
// address is used only if the file gives it clearly.
func (l *loader) salvage() bool {
	for _, keys := range [][]string{{"admin", "include"}, {"admin"}} {
		kept, found := l.src.only(keys)
		if !found {
			continue
		}
		if n, problem := kept.parse(); problem == nil && n != nil && n.Kind == yaml.MappingNode {
			l.sections(n)
			return true
		}
	}
	return false
}

// only returns a copy of the file in which all lines outside the sections in keys are empty. It returns false if
// there are no such sections, if one occurs twice, or if one may be text.
func (s *source) only(keys []string) (kept *source, found bool) {
	var b strings.Builder
	seen := make(map[string]bool)
	within, at := false, 0
	for line := range strings.Lines(s.data) {
		if m := asked.FindStringSubmatch(line); m != nil && slices.Contains(keys, m[1]) {
			if seen[m[1]] || inQuotes(s.data[:at]) {
				return nil, false
			}
			within, seen[m[1]] = true, true
		} else if beginsSection(line) {
			within = false
		}
		if line[0] == '{' {
			return nil, false
		}
		if within {
			b.WriteString(strings.TrimRight(line, "\r\n"))
		}
		b.WriteByte('\n')
		at += len(line)
	}
	return &source{name: s.name, dir: s.dir, data: b.String()}, len(seen) > 0
}

// beginsSection reports whether a line begins a new section. Brackets and list items continue the section before them.
func beginsSection(line string) bool {
	return !strings.ContainsAny(line[:1], " \t\r\n#]}-,")
}

// inQuotes reports whether a text ends within quotes, according to YAML.
func inQuotes(text string) bool {
	_, problem := (&source{data: text}).parse()
	return problem != nil && strings.Contains(problem.Message, "quoted scalar")
}

// beginning is an example of how a file may begin.
const beginning = `listeners: [{name: web, bind: ":8080", upstream: app}]`

// others are lines that show configurations of other programs, which users pass by mistake or in hope.
var others = []struct {
	program string
	line    *regexp.Regexp
}{
	{"HAProxy", regexp.MustCompile(`(?m)^(global|defaults|(frontend|backend|listen)\s+[^\s:{]+)\s*(#.*)?$`)},
	{"nginx", regexp.MustCompile(`(?m)^\s*(events|http|stream|server|upstream\s+\S+)\s*\{`)},
	{"Envoy", regexp.MustCompile(`(?m)^\s*"?(static_resources|dynamic_resources)"?\s*:`)},
	{"Traefik", regexp.MustCompile(`(?m)^(\[?entryPoints\]?|\[?(tcp|http)\.routers\]?)`)},
}

// foreign complains if a file belongs to another program, and reports whether it does.
func (l *loader) foreign() bool {
	text := l.src.data[:min(len(l.src.data), maxBytes)]
	for _, o := range others {
		if at := o.line.FindStringIndex(text); at != nil {
			line := 1 + strings.Count(text[:at[1]], "\n")
			fix := "write YAML that begins like " + beginning
			if o.program == "HAProxy" {
				fix += "; docs/haproxy.md translates the keys"
			}
			l.complainAt(place{src: l.src, line: line, col: 1, width: 1}, fix, "this looks like a configuration of %s", o.program)
			return true
		}
	}
	return false
}

func known(n *yaml.Node) bool {
	for i := 0; i+1 < min(len(n.Content), maxWords); i += 2 {
		if key := target(n.Content[i]).Value; root().byKey[key] != nil || closest(key, root().keys()) != "" {
			return true
		}
	}
	return false
}

// noMapping complains of a file that is not a mapping.
func (l *loader) noMapping(n *yaml.Node) {
	fix := "write YAML that begins like " + beginning
	if n.Kind == yaml.SequenceNode {
		fix = "write listeners: or upstreams: before it, and indent it"
	}
	l.complainAt(l.src.at(n), fix, "a file must be a group of keys, not %s", kindOf(n))
}
