package tlsterm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/internal/file"
)

// A FilesConfig says how files are followed.
type FilesConfig struct {
	// Poll is the interval at which the files are read without an event of the kernel; 0: the default of
	// [discovery.WatchConfig].
	Poll time.Duration

	// Settle is how long a file must be left alone before it is read; 0: 200 ms. A certificate may wait for its key five
	// times as long, before they are reported not to match.
	Settle time.Duration

	// Report is called once for each new content: either the content has taken effect, or Err of the Change says why it
	// cannot. The calls come one after the other. Report may be nil.
	Report func(Change)
}

// A Change reports new contents of a certificate with its key, or of authorities.
type Change struct {
	Paths []string
	Err   error // why the change did not take effect, so that the previous certificates stay
	// Late is the end of a certificate that had already expired when it took effect; otherwise zero.
	Late time.Time
}

// Files are the files of Servers and Clients. Each file is read once, however many use it, and followed. Files are safe for
// concurrent use; nil follows nothing.
type Files struct {
	cfg     FilesConfig
	inotify discovery.Inotify
	ctx     context.Context // done when the files are no longer followed
	stop    context.CancelFunc
	running sync.WaitGroup
	turn    sync.Mutex // held during a change

	mu      sync.Mutex
	sources map[string]*source
}

// NewFiles returns empty Files. Close stops following the files that are opened.
func NewFiles(cfg *FilesConfig) *Files {
	f := &Files{sources: map[string]*source{}}
	if cfg != nil {
		f.cfg = *cfg
	}
	if f.cfg.Settle <= 0 {
		f.cfg.Settle = 200 * time.Millisecond
	}
	if f.cfg.Report == nil {
		f.cfg.Report = func(Change) {}
	}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// Close stops following the files. Servers and Clients go on with the last contents.
func (f *Files) Close() {
	f.stop()
	f.running.Wait()
}

// A source is a file, or two files that belong together.
type source struct {
	spec  pairSpec
	value atomic.Pointer[parsedPair] // the last good contents

	refused atomic.Pointer[error] // why the present contents are not in use; nil: they are in use

	// The mu of the Files guards the following fields.
	users    map[any]func() // called when there is a new value
	stop     context.CancelFunc
	identity fileIdentity // of the files when they were last read
	fresh    bool         // open has read the value, and earlier users do not know it yet
	bad      time.Time    // since when the files cannot be used; zero: they can
	reported bool         // bad was reported
	badSum   any          // identifies the bad content: its sum, or the text of the error
	ended    *parsedPair  // the expired certificate that Ended has reported; nil: none
}

// Ended calls tell once for each certificate in use that has expired by now, with its files and its end.
func (f *Files) Ended(now time.Time, tell func(paths []string, at time.Time)) {
	if !f.mu.TryLock() { // files are being read: the next call reports it
		return
	}
	defer f.mu.Unlock()
	for _, s := range f.sources {
		m := s.value.Load()
		if m.cert == nil || m == s.ended || !now.After(m.cert.Leaf.NotAfter) {
			continue
		}
		s.ended = m
		tell(s.spec.names(), m.cert.Leaf.NotAfter)
	}
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

// open reads the files of r, unless they are read already, and lets another goroutine call changed whenever there is
// something new. Files that are bad now are an error only if no user has good contents of them, so that a rollback does not fail
// because of files that it does not change. user is the key for close.
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
	switch {
	case s == nil:
		watch := discovery.NewWatch(discovery.WatchConfig{Paths: r.names(), Quiet: f.cfg.Settle, Poll: f.cfg.Poll, Share: &f.inotify})
		m, err := r.read()
		if err != nil {
			return nil, err
		}
		s = &source{spec: r, users: map[any]func(){}, identity: prints}
		s.value.Store(m)
		f.sources[r.key()] = s
		ctx, stop := context.WithCancel(f.ctx)
		s.stop = stop
		f.running.Go(func() { watch.Run(ctx, func() { f.look(s) }) })
	case !s.bad.IsZero() || !prints.equal(&s.identity):
		if m, err := r.read(); err == nil && m.sum != s.value.Load().sum {
			s.value.Store(m)
			s.fresh = true
		}
		f.running.Go(func() { f.look(s) }) // for the other users, and to report bad contents
	}
	s.users[user] = changed
	return s, nil
}

// current reports whether files are unchanged since they were read, as far as is known without reading them. Nothing is
// known about files that are not followed.
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
		s.stop()
	}
}

// look reads files that have changed, and brings their contents into force. It looks at bad files again before it reports
// them.
func (f *Files) look(s *source) {
	f.turn.Lock()
	defer f.turn.Unlock()
	f.mu.Lock()
	if f.sources[s.spec.key()] != s || f.ctx.Err() != nil {
		f.mu.Unlock()
		return
	}
	change, changed, wait := s.reread(f.cfg.Settle * 5)
	f.mu.Unlock()
	for _, call := range changed { // without f.mu, because the user's lock is taken first
		call()
	}
	if change != nil {
		f.cfg.Report(*change)
	}
	if wait > 0 {
		time.AfterFunc(wait, func() { f.look(s) })
	}
}

// reread reads the files. It returns the change to report, the functions to call, and the time until the next call of
// reread.
func (s *source) reread(grace time.Duration) (*Change, []func(), time.Duration) {
	prints := s.spec.identity()
	m, err := s.spec.read()
	s.identity = prints
	if err != nil {
		return s.refuse(m, err, grace)
	}
	s.bad, s.reported, s.badSum = time.Time{}, false, nil
	s.refused.Store(nil)
	if m.sum == s.value.Load().sum && !s.fresh {
		return nil, nil, 0
	}
	s.fresh = false
	s.value.Store(m)
	users := make([]func(), 0, len(s.users))
	for _, call := range s.users {
		users = append(users, call)
	}
	c := &Change{Paths: s.spec.names()}
	if m.cert != nil && m.cert.Leaf != nil && time.Now().After(m.cert.Leaf.NotAfter) {
		c.Late, s.ended = m.cert.Leaf.NotAfter, m
	}
	return c, users, 0
}

// refusal returns why the present contents of the files are not in use, or nil. It may be called on a nil source.
func (s *source) refusal() error {
	if s == nil {
		return nil
	}
	if err := s.refused.Load(); err != nil {
		return *err
	}
	return nil
}

// refuse notes that the files are bad. It reports this once for each content, but not before grace is over: one of two
// files may have come before the other.
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

// A fileIdentity identifies the contents of files without reading them: nil for a missing file.
type fileIdentity [2]os.FileInfo

func (r *pairSpec) identity() (p fileIdentity) {
	for i, path := range r.paths {
		if info, err := file.Stat(path); path != "" && err == nil {
			p[i] = info
		}
	}
	return p
}

func (p *fileIdentity) equal(q *fileIdentity) bool {
	for i := range p {
		if !file.Same(p[i], q[i]) {
			return false
		}
	}
	return true
}

// A parsedPair is the contents of one or two files. It is never changed.
type parsedPair struct {
	cert *tls.Certificate // if the files are a pair
	pool *x509.CertPool   // if the file has authorities
	raw  []byte           // the text of the authorities
	sum  [sha256.Size]byte
}

// A pairSpec names one or two files, and the kind of their contents.
type pairSpec struct {
	paths [2]string // the second may be ""
	make  func(p [2]string, text [2][]byte) (*parsedPair, error)
}

func pairOf(cert, key string) pairSpec { return pairSpec{[2]string{cert, key}, makePair} }

func poolOf(path string) pairSpec { return pairSpec{[2]string{path}, makePool} }

func (r *pairSpec) read() (*parsedPair, error) {
	var text [2][]byte
	hash := sha256.New()
	for i, path := range r.paths {
		if path == "" {
			continue
		}
		var err error
		if text[i], err = readFile(path); err != nil {
			return nil, err
		}
		fmt.Fprintf(hash, "%d:", len(text[i]))
		hash.Write(text[i])
	}
	m, err := r.make(r.paths, text)
	if err != nil {
		return &parsedPair{sum: [sha256.Size]byte(hash.Sum(nil))}, err
	}
	m.sum = [sha256.Size]byte(hash.Sum(nil))
	return m, nil
}

func makePair(p [2]string, text [2][]byte) (*parsedPair, error) {
	cert, err := tls.X509KeyPair(text[0], text[1])
	if err != nil {
		return nil, fmt.Errorf("%s: certificate and key (%s): %w", p[0], p[1], err)
	}
	return &parsedPair{cert: &cert}, nil
}

func makePool(p [2]string, text [2][]byte) (*parsedPair, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text[0]) {
		return nil, fmt.Errorf("%s contains no certificate", p[0])
	}
	return &parsedPair{pool: pool, raw: bytes.Clone(text[0])}, nil
}

// maxFile is the largest size of a file. All authorities of a distribution take 220 KB.
const maxFile = 4 << 20

// readFile reads a file. It refuses files that would make it wait, or have no end.
func readFile(path string) ([]byte, error) {
	text, err := file.Read(path, maxFile)
	switch {
	case errors.Is(err, file.ErrIrregular):
		return nil, fmt.Errorf("%s is not a regular file", path)
	case errors.Is(err, file.ErrTooLarge):
		return nil, fmt.Errorf("%s is larger than %d MiB", path, maxFile>>20)
	case err != nil:
		return nil, inFile(path, err)
	}
	return text, nil
}

// inFile puts the file's name in front of an error, once.
func inFile(path string, err error) error {
	var perr *os.PathError
	if errors.As(err, &perr) {
		err = perr.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// An index finds the certificate for a name. It is never changed.
type index struct {
	byName map[string][]*tls.Certificate // "a.example.com", "*.example.com"
	first  []*tls.Certificate            // all certificates with the first one's names
}

// newIndex makes the index of certificates, which keep their order. A name may have several certificates, such as one with
// ECDSA and one with RSA.
func newIndex(pairs []*source) *index {
	x := &index{byName: map[string][]*tls.Certificate{}}
	for _, p := range pairs {
		cert := p.value.Load().cert
		for _, name := range names(cert) {
			x.byName[name] = append(x.byName[name], cert)
		}
	}
	x.first = []*tls.Certificate{pairs[0].value.Load().cert}
	if own := names(x.first[0]); len(own) > 0 && x.byName[own[0]][0] == x.first[0] {
		x.first = x.byName[own[0]]
	}
	return x
}

// names lists the names in a certificate, in lower case, each once.
func names(cert *tls.Certificate) (list []string) {
	seen := map[string]bool{}
	for _, name := range cert.Leaf.DNSNames {
		if name = strings.ToLower(name); !seen[name] {
			seen[name] = true
			list = append(list, name)
		}
	}
	return list
}

// get is GetCertificate of a [tls.Config].
func (x *index) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := strings.ToLower(hello.ServerName)
	if certs := x.byName[name]; certs != nil {
		return fitting(certs, hello), nil
	}
	if _, parent, ok := strings.Cut(name, "."); ok {
		if certs := x.byName["*."+parent]; certs != nil {
			return fitting(certs, hello), nil
		}
	}
	return fitting(x.first, hello), nil
}

// fitting returns the first certificate with a key that the client can check.
func fitting(certs []*tls.Certificate, hello *tls.ClientHelloInfo) *tls.Certificate {
	if len(certs) == 1 {
		return certs[0]
	}
	name := hello.ServerName
	defer func() { hello.ServerName = name }()
	hello.ServerName = "" // the name is decided already
	for _, c := range certs {
		if hello.SupportsCertificate(c) == nil {
			return c
		}
	}
	return certs[0]
}

// A Lifetime is the time for which a certificate is valid.
type Lifetime struct {
	Path       string // the certificate's file
	From, Ends time.Time
	// Refused is why the present contents of the files were not accepted, so that former contents are in use; nil: the
	// present contents were accepted.
	Refused error
}

// A follower is the part of a [Server] and a [Client] that follows their files.
type follower struct {
	files *Files
	build func() // applies the present files; called with mu held
	pairs []*source
	ca    *source // nil: none

	mu     sync.Mutex
	closed bool
}

// follow reads all files and follows them. A change of a file waits for mu.
func (f *follower) follow(pairs []Pair, ca string) error {
	f.mu.Lock()
	var failed []error
	open := func(spec pairSpec) *source {
		s, err := f.files.open(spec, f, f.rebuild)
		if err != nil {
			failed = append(failed, err)
		}
		return s
	}
	if ca != "" {
		f.ca = open(poolOf(ca))
	}
	for _, p := range pairs {
		if s := open(pairOf(p.Cert, p.Key)); s != nil {
			f.pairs = append(f.pairs, s)
		}
	}
	if failed == nil {
		f.build()
	}
	f.mu.Unlock()
	if failed != nil {
		f.Close()
	}
	return errors.Join(failed...)
}

func (f *follower) rebuild() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.build()
	}
}

// Close stops following the files. Handshakes go on with the present contents.
func (f *follower) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.closed = true
	for _, s := range append(f.pairs, f.ca) {
		if s != nil {
			f.files.close(s, f)
		}
	}
}

// Current reports whether the files are unchanged since they were read. If so, another Server or Client with the same
// configuration would be the same, and would not fail.
func (f *follower) Current() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.closed && f.files.current(append(f.pairs, f.ca)...)
}

// Lifetimes returns the lifetimes of the certificates that new handshakes use, without the intermediate ones.
func (f *follower) Lifetimes() (list []Lifetime) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pairs {
		leaf := p.value.Load().cert.Leaf
		list = append(list, Lifetime{Path: p.spec.paths[0], From: leaf.NotBefore, Ends: leaf.NotAfter, Refused: p.refusal()})
	}
	return list
}

// AuthoritiesRefused returns why the present contents of the file of authorities were not accepted, so that former
// contents are in use; nil: the present contents were accepted, or there is no such file.
func (f *follower) AuthoritiesRefused() error { return f.ca.refusal() }
