// Package pathcall bounds the system calls that look up a path and may wait for its file system, which may never answer.
package pathcall

import (
	"context"
	"path/filepath"
	"sync"
)

// most is how many calls about one directory are made at a time. Each of them keeps a thread.
const most = 4

// calls are the calls about a directory.
type calls struct {
	places  chan struct{} // taken by the calls that are being made
	pending int           // calls that are being made, or wait for a place; guarded by mu
}

var (
	mu          sync.Mutex
	directories = make(map[string]*calls) // directories with pending calls; guarded by mu
)

// Do makes a call about a path, after others about the same directory if there are many. If ctx ends before the call has begun,
// Do does not make it, and returns the error of ctx. It is safe for concurrent use.
func Do(ctx context.Context, path string, call func()) error {
	dir := filepath.Dir(path)
	c := enter(dir)
	defer leave(dir, c)
	select {
	case c.places <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.places }()
	call()
	return nil
}

func enter(dir string) *calls {
	mu.Lock()
	defer mu.Unlock()
	c := directories[dir]
	if c == nil {
		c = &calls{places: make(chan struct{}, most)}
		directories[dir] = c
	}
	c.pending++
	return c
}

func leave(dir string, c *calls) {
	mu.Lock()
	defer mu.Unlock()
	if c.pending--; c.pending == 0 {
		delete(directories, dir)
	}
}
