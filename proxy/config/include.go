package config

import (
	"path/filepath"
	"slices"
	"strings"
)

// special are the characters that make a name a pattern.
const special = `*?[\`

// include reads the files that a file includes.
func (l *loader) include(part *Config) {
	for i := range part.Include {
		pattern, at := part.Include[i], l.places[&part.Include[i]]
		if pattern == "" {
			if l.partial = l.partial || l.bad[&part.Include[i]]; !l.bad[&part.Include[i]] {
				l.complainAt(at, "write conf.d/*.yaml, or leave it out", "this includes nothing")
			}
			continue
		}
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(l.src.name), pattern)
		}
		if absolute, err := filepath.Abs(pattern); err == nil {
			l.cfg.Globs = append(l.cfg.Globs, absolute)
		}
		for _, path := range l.matching(pattern, part.Include[i], at) {
			l.file(path, at)
		}
	}
}

// matching returns the files that match a pattern, in order. The pattern was written at a
// place.
func (l *loader) matching(pattern, written string, at place) []string {
	if strings.ContainsAny(filepath.Dir(pattern), special) {
		l.partial = true
		l.complainAt(at, "write conf.d/*.yaml", "the directory of %q is a pattern", written)
		return nil
	}
	paths, err := l.glob(pattern)
	plain := !strings.ContainsAny(pattern, special)
	l.partial = l.partial || err != nil || len(paths) == 0 && plain
	switch {
	case err != nil:
		l.complainAt(at, `write conf.d/*.yaml, with \ before a special character`, "%q is not a pattern", written)
	case len(paths) == 0 && plain:
		l.complainAt(at, "write the name of a file that is there, or a pattern", "there is no file %s", pattern)
	case plain && l.isDir(pattern):
		l.partial = true
		l.complainAt(at, "write "+filepath.Join(written, "*.yaml"), "%s is a directory", pattern)
		return nil
	case plain && absolute(pattern) == l.within[len(l.within)-1]:
		l.warnAt(at, "leave it out", "this file includes itself, which adds nothing")
	case plain && slices.Contains(l.within, absolute(pattern)):
		l.warnAt(at, "leave it out", "%s includes this file already, so this adds nothing", pattern)
	case !plain && !l.others(paths):
		l.unmatched(pattern, written, at)
	}
	slices.Sort(paths)
	return paths
}

// others reports whether paths has a file other than the one being read.
func (l *loader) others(paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool { return absolute(path) != l.within[len(l.within)-1] })
}

// unmatched warns of a pattern that no other file matches. If its directory has no other files
// there is no warning, as it may be a place for future files.
func (l *loader) unmatched(pattern, written string, at place) {
	dir := filepath.Dir(pattern)
	all, err := l.glob(filepath.Join(dir, "*"))
	switch {
	case !l.isDir(dir):
		l.warnAt(at, "make it, write another one, or leave it out", "there is no directory %s", dir)
	case err == nil && l.others(all):
		l.warnAt(at, "write a pattern that matches the names of files, or leave it out", "%s matches no other file", written)
	}
}

// absolute returns the same path for the same file, except for links.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
