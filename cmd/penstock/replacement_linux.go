package main

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// replacement is a new content for a file: it goes into a file beside it, which
// takes the name when all of it is there. So whoever reads the file finds the old
// content or the new one, whatever happens. What is no ordinary file (/dev/null, a
// pipe), and what is in a directory that may not be written, is written in place.
type replacement struct {
	file    *os.File // owned here
	name    string   // to take; "" for what is written in place
	written bool
	failed  bool // to write: it is not all there
}

// newReplacement opens one for the file of that name, which need not exist.
func newReplacement(name string) (*replacement, error) {
	target := name
	if real, err := filepath.EvalSymlinks(name); err == nil {
		target = real // so that a link stays one
	}
	info, err := os.Stat(target)
	exists := err == nil
	if exists && !info.Mode().IsRegular() {
		return inPlace(name)
	}
	mode := fs.FileMode(0o644)
	if exists {
		mode = 0o600 // whoever may not read the old one does not open the new one before it is alike
	}
	f, err := os.OpenFile(target+"."+rand.Text()[:8]+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	switch {
	case err != nil && exists:
		return inPlace(name)
	case err != nil:
		return nil, renamed(err, name)
	case exists:
		alike(f, info)
	}
	return &replacement{file: f, name: target}, nil
}

// inPlace opens what is not to be replaced as a whole.
func inPlace(name string) (*replacement, error) {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	return &replacement{file: f}, nil
}

// renamed is an error of opening with the name that somebody has asked for.
func renamed(err error, name string) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		at.Path = name
	}
	return err
}

// alike gives a file the owner and the permissions of another, as far as it may.
func alike(f *os.File, info fs.FileInfo) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(s.Uid), int(s.Gid))
	}
	_ = f.Chmod(info.Mode().Perm())
}

// Write writes; the first one empties what is written in place.
func (r *replacement) Write(b []byte) (int, error) {
	if info, err := r.file.Stat(); !r.written && r.name == "" && err == nil && info.Mode().IsRegular() {
		if err := r.file.Truncate(0); err != nil {
			return 0, err
		}
	}
	r.written = true
	n, err := r.file.Write(b)
	r.failed = r.failed || err != nil
	return n, err
}

// Close puts the file in its place, if something was written, and all of it.
func (r *replacement) Close() error {
	err := r.file.Close()
	switch {
	case r.name == "":
		return err
	case err == nil && r.written && !r.failed:
		return os.Rename(r.file.Name(), r.name)
	}
	return errors.Join(err, os.Remove(r.file.Name()))
}
