package config

import (
	"bytes"
	"compress/gzip"
	"encoding/gob"
	"fmt"
	"io/fs"
)

// A reading is what a file was read as: its text, and whatever its values took from other files, variables and patterns.
type reading struct {
	Path  string
	Files map[string][]byte
	Vars  map[string]string
	Globs map[string][]string

	origin *origin
}

// An origin stands for a Config and those that it comes back as.
type origin struct{ _ byte }

// Origin returns a value that equals the one of another Config only if both are the same, or one is the other as it was kept.
func (c *Config) Origin() any {
	if c.reading == nil {
		return c
	}
	return c.reading.origin
}

// record has the loader note what it reads until the values are there. Certificates, which are read after that, are not noted.
func (l *loader) record(path string) {
	r := &reading{origin: new(origin), Path: path, Files: make(map[string][]byte), Vars: make(map[string]string), Globs: make(map[string][]string)}
	env, read, glob := l.env, l.read, l.glob
	l.recorded = r
	if env != nil {
		l.env = func(name string) (string, bool) {
			value, ok := env(name)
			if ok {
				r.Vars[name] = value
			}
			return value, ok
		}
	}
	l.read = func(path string, most int) ([]byte, error) {
		data, err := read(path, most)
		if err == nil && l.recorded != nil {
			r.Files[path] = data
		}
		return data, err
	}
	l.glob = func(pattern string) ([]string, error) {
		paths, err := glob(pattern)
		r.Globs[pattern] = paths
		return paths, err
	}
}

// Kept is a Config that was loaded, as the compressed text of its files: a fraction of its size in memory. It is not changed.
type Kept struct {
	text   []byte
	origin *origin
}

// Keep returns c as text; nil if c was not loaded by [Load].
func (c *Config) Keep() *Kept {
	if c.reading == nil {
		return nil
	}
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is valid
	if gob.NewEncoder(z).Encode(c.reading) != nil || z.Close() != nil {
		return nil // neither fails with a buffer
	}
	return &Kept{bytes.Clone(b.Bytes()), c.reading.origin}
}

// Load returns the Config with the values and positions that it had, whatever its files, the environment and the machine are by now. It has
// no warnings.
func (k *Kept) Load() (*Config, error) {
	r := reading{origin: k.origin}
	z, err := gzip.NewReader(bytes.NewReader(k.text))
	if err == nil {
		err = gob.NewDecoder(z).Decode(&r)
	}
	if err != nil {
		return nil, fmt.Errorf("the configuration as it was kept: %w", err)
	}
	l := newLoader(func(name string) (string, bool) {
		value, ok := r.Vars[name]
		return value, ok
	})
	l.read = func(path string, _ int) ([]byte, error) {
		if data, ok := r.Files[path]; ok {
			return data, nil
		}
		return nil, fs.ErrNotExist
	}
	l.glob = func(pattern string) ([]string, error) { return r.Globs[pattern], nil }
	l.file(r.Path, place{})
	if len(l.problems) > 0 {
		return nil, fmt.Errorf("the configuration as it was kept: %w", problemError(l.problems))
	}
	files := append(l.cfg.Files, l.named...)
	l.finish() // for its defaults: what it finds is of the machine as it is now
	cfg := l.cfg
	cfg.Files, cfg.Warnings, cfg.reading = files, nil, &r
	return &cfg, nil
}
