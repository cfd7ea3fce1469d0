package discovery

import (
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// Inotify is an inotify(7) instance shared by any number of watches: a user has only 128 by
// default, for all programs together. The zero value is ready. It is open while there are
// watches, and safe for concurrent use.
type Inotify struct {
	// asking is held while a directory is added to or removed from the instance. It is locked
	// before mu. Passing events on needs mu alone: fsnotify may have to deliver an error
	// before it can add or remove a directory.
	asking sync.Mutex
	uses   map[string]int // number of users of each directory; guarded by asking

	mu      sync.Mutex
	from    *fsnotify.Watcher // owns the descriptor; nil: there are no users, or it could not be opened
	passing chan struct{}     // closed when the goroutine that reads from has ended
	users   map[*events]struct{}
}

// join adds a user.
func (n *Inotify) join(e *events) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.users == nil {
		n.users = map[*events]struct{}{}
	}
	n.users[e] = struct{}{}
}

// leave removes a user. With the last one it closes the descriptor.
func (n *Inotify) leave(e *events) {
	for dir := range n.anew(e) {
		n.release(dir)
	}
	n.mu.Lock()
	delete(n.users, e)
	from, passing := n.from, n.passing
	if len(n.users) > 0 || from == nil {
		n.mu.Unlock()
		return
	}
	n.from = nil
	n.mu.Unlock()
	from.Close()
	<-passing
}

// anew removes all directories of e and returns them. The caller releases them after it has
// added the new ones.
func (n *Inotify) anew(e *events) (before map[string]map[string]struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before, e.names = e.names, map[string]map[string]struct{}{}
	if n.from == nil {
		n.open()
	}
	return before
}

// open opens the instance. The caller holds n.mu. If it fails it is tried again later.
func (n *Inotify) open() {
	from, err := fsnotify.NewWatcher()
	if err != nil {
		return
	}
	n.from, n.passing = from, make(chan struct{})
	go n.pass(from, n.passing)
}

// heed makes e receive events for name in dir, and reports whether it will. It asks the kernel
// each time: another directory may have that name by now.
func (n *Inotify) heed(e *events, dir, name string) bool {
	n.asking.Lock()
	defer n.asking.Unlock()
	n.mu.Lock()
	from, another := n.from, e.names[dir] == nil
	if another {
		e.names[dir] = map[string]struct{}{}
	}
	e.names[dir][name] = struct{}{}
	n.mu.Unlock()
	if another {
		if n.uses == nil {
			n.uses = map[string]int{}
		}
		n.uses[dir]++
	}
	return from != nil && from.Add(dir) == nil
}

// release releases one use of dir.
func (n *Inotify) release(dir string) {
	n.asking.Lock()
	defer n.asking.Unlock()
	if n.uses[dir]--; n.uses[dir] > 0 {
		return
	}
	delete(n.uses, dir)
	n.mu.Lock()
	from := n.from
	n.mu.Unlock()
	if from != nil {
		_ = from.Remove(dir) // an error means that it has gone by itself
	}
}

// pass passes the events of from to the users, until from is closed.
func (n *Inotify) pass(from *fsnotify.Watcher, ended chan<- struct{}) {
	defer close(ended)
	for {
		select {
		case event, ok := <-from.Events:
			if !ok {
				return
			}
			n.notify(func(e *events) bool { return e.matters(event) })
		case _, ok := <-from.Errors: // such as an overflow: anything may have happened
			if !ok {
				return
			}
			n.notify(func(*events) bool { return true })
		}
	}
}

func (n *Inotify) notify(whom func(*events) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for e := range n.users {
		if !whom(e) {
			continue
		}
		select {
		case e.poke <- struct{}{}:
		default: // the previous one is still unread
		}
	}
}

// matters reports whether the event is about something on the way to a file of e.
func (e *events) matters(event fsnotify.Event) bool {
	if e.names[event.Name] != nil {
		return true // the directory itself
	}
	names := e.names[filepath.Dir(event.Name)]
	_, named := names[filepath.Base(event.Name)]
	_, all := names[anything]
	return named || all
}
