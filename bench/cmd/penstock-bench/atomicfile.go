package main

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// atomicFile is a new content for a file. It is written to a file beside it, which takes the
// name when it is complete. So a reader always finds either the old content or the new one. If
// the file is no ordinary one (/dev/null, a pipe), or its directory is not writable, it is
// written in place.
type atomicFile struct {
	file    *os.File // owned here
	name    string   // the final name; "" if written in place
	written bool
	failed  bool // a write failed: the content is incomplete
}

// newAtomicFile opens one for the file of that name, which need not exist.
func newAtomicFile(name string) (*atomicFile, error) {
	target := name
	if real, err := filepath.EvalSymlinks(name); err == nil {
		target = real // so that a symbolic link stays one
	}
	info, err := os.Stat(target)
	exists := err == nil
	if exists && !info.Mode().IsRegular() {
		return inPlace(name)
	}
	mode := fs.FileMode(0o644)
	if exists {
		mode = 0o600 // until alike, a user without access to the old file cannot open the new one
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
	return &atomicFile{file: f, name: target}, nil
}

// inPlace opens a file that is not replaced as a whole.
func inPlace(name string) (*atomicFile, error) {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	return &atomicFile{file: f}, nil
}

// renamed sets the path of an open error to the name that the user gave.
func renamed(err error, name string) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		at.Path = name
	}
	return err
}

// alike copies the owner and the permissions of another file to f, as far as permitted.
func alike(f *os.File, info fs.FileInfo) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(s.Uid), int(s.Gid))
	}
	_ = f.Chmod(info.Mode().Perm())
}

// Write writes b. The first call truncates a file that is written in place.
func (r *atomicFile) Write(b []byte) (int, error) {
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

// Close renames the file to its final name, if it was written completely. Otherwise it removes
// the temporary file.
func (r *atomicFile) Close() error {
	err := r.file.Close()
	switch {
	case r.name == "":
		return err
	case err == nil && r.written && !r.failed:
		return os.Rename(r.file.Name(), r.name)
	}
	return errors.Join(err, os.Remove(r.file.Name()))
}
