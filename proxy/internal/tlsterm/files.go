package tlsterm

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A FilesConfig says how files are followed.
type FilesConfig struct {
	// Poll is how often each file is looked at, for where the kernel does not report changes
	// (network file systems, the target of a symbolic link in another directory); 0: 10 s.
	Poll time.Duration

	// Settle is how long a file must be left alone before it is read; 0: 200 ms. Five
	// times that is how long a certificate may wait for its key, before it is said
	// that they do not match.
	Settle time.Duration

	// Report is called when a new content has taken effect, or cannot, with the reason. It is
	// called by one goroutine, once for each content; it may be nil.
	Report func(Change)
}

// A Change is one of a certificate with its key, or of authorities.
type Change struct {
	Paths []string
	Err   error // why it did not take effect; keeping the previous certificates
	// Late is the end of a certificate that has taken effect although it had expired; otherwise zero.
	Late time.Time
}

// Files are those that Servers and Clients have been made of. Each is read once, however many
// use it, and followed: the kernel reports changes in its directory (inotify), and all are
// looked at from time to time. They are safe for concurrent use; nil follows nothing.
type Files struct {
	cfg FilesConfig

	mu      sync.Mutex
	sources map[string]*source
	dirs    map[string]int // how many sources have a file there
	notice  notifier       // owned; nil: the kernel cannot be asked, or none is followed
	closed  bool

	now  chan struct{} // has room for one
	stop chan struct{}
	done chan struct{}
}

// NewFiles returns Files with none in them, and begins to follow those to come. Close ends it.
func NewFiles(cfg *FilesConfig) *Files { return newFiles(cfg, notify()) }

func newFiles(cfg *FilesConfig, notice notifier) *Files {
	f := &Files{
		notice:  notice,
		sources: map[string]*source{},
		dirs:    map[string]int{},
		now:     make(chan struct{}, 1),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
	}
	if cfg != nil {
		f.cfg = *cfg
	}
	if f.cfg.Poll <= 0 {
		f.cfg.Poll = 10 * time.Second
	}
	if f.cfg.Settle <= 0 {
		f.cfg.Settle = 200 * time.Millisecond
	}
	if f.cfg.Report == nil {
		f.cfg.Report = func(Change) {}
	}
	go f.follow()
	return f
}

// Close ends the following. Servers and Clients go on with the last contents.
func (f *Files) Close() {
	f.mu.Lock()
	closed := f.closed
	f.closed = true
	f.mu.Unlock()
	if !closed {
		close(f.stop)
	}
	<-f.done
}

// A source is a file, or two that belong together.
type source struct {
	spec  pairSpec
	value atomic.Pointer[parsedPair] // the last good one

	refused atomic.Pointer[error] // why the present contents are not in use; nil: they are

	// The following fields are the Files', under its mu.
	users    map[any]func() // called when there is a new value
	identity fileIdentity   // of the files when they were read last
	bad      time.Time      // since when they cannot be used; zero: they can
	reported bool           // that they cannot
	badSum   any            // of the bad content: its sum, or the words of the error
}

func (r *pairSpec) key() string { return strings.Join(r.paths[:], "\x00") }

func (r *pairSpec) names() (list []string) {
	for _, p := range r.paths {
		if p != "" && (len(list) == 0 || list[0] != p) {
			list = append(list, p)
		}
	}
	return list
}

// open reads the files of the recipe, or finds them read already, and has changed called by
// another goroutine whenever there is something new. Files that are bad now are an error also
// if they were good when they were read before. user is the key for close.
func (f *Files) open(r pairSpec, user any, changed func()) (*source, error) {
	if f == nil {
		m, err := r.read()
		if err != nil {
			return nil, err
		}
		s := &source{spec: r}
		s.value.Store(m)
		return s, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sources[r.key()]
	prints := r.identity()
	if s == nil || !s.bad.IsZero() || !prints.equal(&s.identity) {
		m, err := r.read()
		if err != nil {
			return nil, err // though others may go on with the contents read before
		}
		if s == nil {
			s = f.add(r, prints, m)
		} else {
			f.hurry()
		}
	}
	s.users[user] = changed
	return s, nil
}

// add begins to follow files. The caller holds f.mu.
func (f *Files) add(r pairSpec, prints fileIdentity, m *parsedPair) *source {
	s := &source{spec: r, users: map[any]func(){}, identity: prints}
	s.value.Store(m)
	f.sources[r.key()] = s
	f.watch(s)
	return s
}

// hurry has the files looked at now. Opening one that has changed does not put the new value
// in force itself: others use it, and are called by the one goroutine.
func (f *Files) hurry() {
	select {
	case f.now <- struct{}{}:
	default:
	}
}

// current reports whether files are those that were read, as far as is known without reading
// them. Files that are not followed are not known to be.
func (f *Files) current(sources ...*source) bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range sources {
		if s == nil {
			continue
		}
		if prints := s.spec.identity(); !s.bad.IsZero() || !prints.equal(&s.identity) {
			return false
		}
	}
	return true
}

// close ends the use that open began.
func (f *Files) close(s *source, user any) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(s.users, user)
	if len(s.users) == 0 && f.sources[s.spec.key()] == s {
		delete(f.sources, s.spec.key())
		f.unwatch(s)
	}
}

// watch asks the kernel to report changes beside the files of s. The caller holds f.mu.
func (f *Files) watch(s *source) {
	for _, path := range s.spec.names() {
		dir := filepath.Dir(path)
		if f.dirs[dir]++; f.dirs[dir] == 1 && f.notice != nil {
			_ = f.notice.Add(dir) // or they are found by looking
		}
	}
}

func (f *Files) unwatch(s *source) {
	for _, path := range s.spec.names() {
		dir := filepath.Dir(path)
		if f.dirs[dir]--; f.dirs[dir] == 0 {
			delete(f.dirs, dir)
			if f.notice != nil {
				_ = f.notice.Remove(dir)
			}
		}
	}
}

// look reads the files of those sources that may have changed: all that have a file in
// one of dirs, or look different. It says how soon it should look again at one that is
// bad; 0: there is none.
func (f *Files) look(dirs map[string]bool) (again time.Duration) {
	var tell []Change
	var changed []func()
	f.mu.Lock()
	for _, s := range f.sources {
		if !s.due(dirs) {
			continue
		}
		change, users, wait := s.reread(f.cfg.Settle * 5)
		if change != nil {
			tell = append(tell, *change)
		}
		changed = append(changed, users...)
		if wait > 0 && (again == 0 || wait < again) {
			again = wait
		}
	}
	f.mu.Unlock()
	for _, call := range changed { // without f.mu: it is the user's lock that comes first
		call()
	}
	for _, c := range tell {
		f.cfg.Report(c)
	}
	return again
}

// due reports whether the files must be read.
func (s *source) due(dirs map[string]bool) bool {
	if !s.bad.IsZero() && !s.reported {
		return true
	}
	for _, path := range s.spec.names() {
		if dirs[filepath.Dir(path)] {
			return true
		}
	}
	now := s.spec.identity()
	return !now.equal(&s.identity)
}

// reread reads the files. It returns the change to be reported, the functions to be called,
// and how soon it should be called again.
func (s *source) reread(grace time.Duration) (*Change, []func(), time.Duration) {
	prints := s.spec.identity()
	m, err := s.spec.read()
	s.identity = prints
	if err != nil {
		return s.refuse(m, err, grace)
	}
	s.bad, s.reported, s.badSum = time.Time{}, false, nil
	s.refused.Store(nil)
	if m.sum == s.value.Load().sum {
		return nil, nil, 0
	}
	s.value.Store(m)
	users := make([]func(), 0, len(s.users))
	for _, call := range s.users {
		users = append(users, call)
	}
	c := &Change{Paths: s.spec.names()}
	if m.cert != nil && m.cert.Leaf != nil && time.Now().After(m.cert.Leaf.NotAfter) {
		c.Late = m.cert.Leaf.NotAfter
	}
	return c, users, 0
}

// refusal returns why the present contents of the files are not in use, nil if they are. No
// source has no contents.
func (s *source) refusal() error {
	if s == nil {
		return nil
	}
	if err := s.refused.Load(); err != nil {
		return *err
	}
	return nil
}

// refuse notes that the files are bad, and reports it once for each content, but not before
// grace is over: one of two may have come before the other.
func (s *source) refuse(m *parsedPair, err error, grace time.Duration) (*Change, []func(), time.Duration) {
	var what any = err.Error()
	if m != nil {
		what = m.sum
	}
	now := time.Now()
	if s.bad.IsZero() || s.badSum != what {
		s.bad, s.reported, s.badSum = now, false, what
	}
	if s.reported {
		return nil, nil, 0
	}
	if wait := grace - now.Sub(s.bad); wait > 0 {
		return nil, nil, wait
	}
	s.reported = true
	s.refused.Store(&err)
	return &Change{
		Paths: s.spec.names(),
		Err:   fmt.Errorf("keeping the previous certificates: %w", err),
	}, nil, 0
}
