package config

import (
	"fmt"
	"path/filepath"
	"reflect"

	"github.com/penstock/penstock/internal/topology"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/sockopt"
	"go.yaml.in/yaml/v4"
)

// An Env looks up an environment variable; [os.LookupEnv] is one.
type Env func(name string) (value string, ok bool)

// Load reads and checks a file and all files that it includes. If there are errors, it returns
// every problem in the order of the files and their lines, and a nil Config. Otherwise the
// Config has the warnings.
//
// From the file system it reads only these files, the files named by file: and respond, and
// certificates.
func Load(path string, env Env) (*Config, []Problem) {
	l := newLoader(env)
	l.record(path)
	l.file(path, place{})
	return l.finish()
}

// Parse is [Load] of a text in place of a file; name stands for the file in the problems. Files
// of the Config is empty unless the text names files.
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
	twice   bool // a section is in several files
	glob    func(pattern string) ([]string, error)

	recorded *reading // nil: it is not recorded
}

func newLoader(env Env) *loader {
	l := &loader{visited: make(map[string]bool), glob: filepath.Glob}
	l.env, l.read, l.mode, l.isDir, l.exists, l.isLocal, l.reaches = env, file.Read, fileMode, isDir, exists, isLocal, sockopt.Local()
	l.cpus, l.nodes, l.cpusOf = topology.CPUs, topology.Nodes, topology.CPUsOf
	l.controls, l.control = sockopt.Congestions, sockopt.TryCongestion
	l.places, l.bad, l.strange = make(map[any]place), make(map[any]bool), make(map[any]bool)
	root().fill(reflect.ValueOf(&l.cfg).Elem())
	return l
}

// file reads one file that was named at a place. The first file has no such place.
func (l *loader) file(path string, named place) {
	abs := absolute(path)
	if l.visited[abs] {
		return
	}
	l.visited[abs] = true
	data, err := l.read(path, maxFile)
	l.bytes += len(data)
	switch {
	case err != nil:
		if named.src == nil {
			named = place{src: &source{name: path}}
			err = fmt.Errorf("cannot be read: %w", pathless(err))
		}
		l.complainAt(named, mend(err, maxFile), "%v", err)
		l.partial = true
		return
	case len(l.visited) > maxFiles || l.bytes > maxAll:
		l.partial = true
		l.complainAt(named, "include less", "there are more than %d files, or %s of them", maxFiles, showSize(maxAll))
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

// sections reads the sections of a file.
func (l *loader) sections(n *yaml.Node) {
	var part Config
	root().fill(reflect.ValueOf(&part).Elem())
	l.object("a file", root(), reflect.ValueOf(&part).Elem(), n)
	l.partial = l.partial || l.bad[&part] || l.bad[&part.Upstreams] || l.bad[&part.Include]
	l.add(&part)
	l.include(&part)
}

// add adds the content of one file to that of the others.
func (l *loader) add(part *Config) {
	if l.given(&part.Limits) {
		l.once("limits", &l.cfg.Limits, &part.Limits)
		l.cfg.Limits = part.Limits
		from, to := &part.Limits, &l.cfg.Limits
		l.moved(from, to)
		l.moved(&from.Memory, &to.Memory)
		l.moved(&from.Memory.NUMA, &to.Memory.NUMA)
		l.moved(&from.Loops, &to.Loops)
		l.moved(&from.Loops.Count, &to.Loops.Count)
		l.moved(&from.Loops.Affinity, &to.Loops.Affinity)
	}
	if l.given(&part.Lane) {
		l.once("lane", &l.cfg.Lane, &part.Lane)
		l.cfg.Lane = part.Lane
		l.moved(&part.Lane, &l.cfg.Lane)
	}
	if l.given(&part.StateFile) {
		l.once("state_file", &l.cfg.StateFile, &part.StateFile)
		l.cfg.StateFile = part.StateFile
		l.moved(&part.StateFile, &l.cfg.StateFile)
	}
	section(l, "admin", &part.Admin, &l.cfg.Admin)
	section(l, "session_log", &part.SessionLog, &l.cfg.SessionLog)
	section(l, "metrics", &part.Metrics, &l.cfg.Metrics)
	section(l, "traces", &part.Traces, &l.cfg.Traces)
	l.cfg.Listeners = append(l.cfg.Listeners, part.Listeners...)
	l.cfg.Upstreams = append(l.cfg.Upstreams, part.Upstreams...)
}

// section adds a section of which there is one in all files.
func section[T any](l *loader, key string, part, whole **T) {
	if !l.given(part) {
		return
	}
	l.once(key, whole, part)
	*whole = *part
	l.moved(part, whole)
}

// once complains of a section that an earlier file also has.
func (l *loader) once(key string, whole, part any) {
	if before, ok := l.places[whole]; ok {
		l.twice = true
		l.complainAt(l.places[part], "leave it out here or there", "%s is in %v too", key, before.pos())
	}
}

// moved records that a field was copied.
func (l *loader) moved(from, to any) {
	if at, given := l.places[from]; given {
		l.places[to] = at
	}
	if l.bad[from] {
		l.bad[to] = true
	}
}

// finish checks the whole and returns it.
func (l *loader) finish() (*Config, []Problem) {
	l.laneDefault()
	l.cfg.reading, l.recorded = l.recorded, nil
	if len(l.names) > 0 && l.memory <= maxMemory {
		l.check()
	}
	if len(l.problems) == 0 {
		l.cfg.Files = append(l.cfg.Files, l.named...)
		l.cfg.Warnings = sorted(l.warnings, l.names)
		cfg := l.cfg // a pointer into the loader would keep all of that
		return &cfg, nil
	}
	return nil, l.found()
}

// found returns the problems.
func (l *loader) found() []Problem {
	problems := sorted(l.problems, l.names)
	if l.dropped > 0 {
		problems = append(problems, Problem{Message: fmt.Sprintf("and %d more", l.dropped)})
	}
	return problems
}
