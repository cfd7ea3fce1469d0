package discovery

import (
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// Notifications is an inotify(7) instance that any number of watches share: a user
// has but few, 128 by default, and not for one program alone. The zero value is
// ready. It is open while somebody watches, and safe for concurrent use.
type Notifications struct {
	// asking is held while the kernel is asked to listen or not to. It is taken
	// before mu, which is all that passing on needs: fsnotify may want to be
	// relieved of an error before it lets anybody ask.
	asking sync.Mutex
	uses   map[string]int // how many of the users listen to a directory; of asking

	mu      sync.Mutex
	from    *fsnotify.Watcher // owns the descriptor; nil: nobody watches, or there is none to be had
	passing chan struct{}     // closed when the goroutine that reads from has ended
	users   map[*events]struct{}
}

// join adds a user.
func (n *Notifications) join(e *events) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.users == nil {
		n.users = map[*events]struct{}{}
	}
	n.users[e] = struct{}{}
}

// leave removes a user; with the last one the descriptor is closed.
func (n *Notifications) leave(e *events) {
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

// anew has e listen to nothing any more, and returns the directories that it
// listened to, to be released when it listens to others.
func (n *Notifications) anew(e *events) (before map[string]map[string]struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before, e.names = e.names, map[string]map[string]struct{}{}
	if n.from == nil {
		n.open()
	}
	return before
}

// open is called with n.mu held. If it fails it is tried again later.
func (n *Notifications) open() {
	from, err := fsnotify.NewWatcher()
	if err != nil {
		return
	}
	n.from, n.passing = from, make(chan struct{})
	go n.pass(from, n.passing)
}

// heed has e told of what happens to name in dir, and reports whether it will be.
// The kernel is asked each time: another directory may have that name by now.
func (n *Notifications) heed(e *events, dir, name string) bool {
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

// release gives back one use of dir.
func (n *Notifications) release(dir string) {
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
		_ = from.Remove(dir) // or it has gone by itself
	}
}

// pass tells the users what from tells, until it is closed.
func (n *Notifications) pass(from *fsnotify.Watcher, ended chan<- struct{}) {
	defer close(ended)
	for {
		select {
		case event, ok := <-from.Events:
			if !ok {
				return
			}
			n.tell(func(e *events) bool { return e.matters(event) })
		case _, ok := <-from.Errors: // such as an overflow: anything may have happened
			if !ok {
				return
			}
			n.tell(func(*events) bool { return true })
		}
	}
}

func (n *Notifications) tell(whom func(*events) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for e := range n.users {
		if !whom(e) {
			continue
		}
		select {
		case e.poke <- struct{}{}:
		default: // it has not heard the previous one yet
		}
	}
}

// matters reports whether the event is about something on the way to a file of e.
func (e *events) matters(event fsnotify.Event) bool {
	if e.names[event.Name] != nil {
		return true // a directory itself
	}
	names := e.names[filepath.Dir(event.Name)]
	_, named := names[filepath.Base(event.Name)]
	_, all := names[anything]
	return named || all
}
