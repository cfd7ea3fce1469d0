// Package keypair follows a certificate and its key in files, for servers that need no more than one.
package keypair

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/internal/file"
)

// A Pair is a certificate and its key in files, which are read again when they have changed. If they cannot
// be used then, the former ones stay in use. It is safe for concurrent use.
type Pair struct {
	cert, key string
	log       *slog.Logger

	mu      sync.Mutex
	now     *tls.Certificate
	looked  [2]os.FileInfo   // nil: the file was missing
	refused error            // why the files are not in use; nil: they are
	ended   *tls.Certificate // whose end was logged
}

// New reads a certificate and its key. Files that cannot be used later are logged, and once a certificate that has ended.
func New(cert, key string, log *slog.Logger) (*Pair, error) {
	p := &Pair{cert: cert, key: key, log: log}
	looked, err := p.look()
	if err != nil {
		return nil, fmt.Errorf("certificate %s, key %s: %w", cert, key, err)
	}
	now, err := file.KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s, key %s: %w", cert, key, err)
	}
	p.now, p.looked = &now, looked
	return p, nil
}

// Next returns p, which may be nil, if it has these files: bad files do not stop a change of anything else. Otherwise it
// returns a new Pair.
func (p *Pair) Next(cert, key string, log *slog.Logger) (*Pair, error) {
	if p != nil && p.cert == cert && p.key == key {
		return p, nil
	}
	return New(cert, key, log)
}

// look looks at the files without reading them.
func (p *Pair) look() ([2]os.FileInfo, error) {
	return file.Within(p.cert, func() (files [2]os.FileInfo) {
		for i, path := range []string{p.cert, p.key} {
			if info, err := os.Stat(path); err == nil {
				files[i] = info
			}
		}
		return files
	})
}

// Get implements GetCertificate of [tls.Config]. It never fails.
func (p *Pair) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.Now(), nil }

// Now returns the certificate in use. Its Leaf is set.
func (p *Pair) Now() *tls.Certificate {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.newest()
	if at := now.Leaf.NotAfter; p.ended != now && time.Now().After(at) {
		p.ended = now
		p.log.Warn("a certificate has expired, and clients do not accept it: write a valid certificate to the file (no reload is needed)", "cert", p.cert, "key", p.key, "until", at)
	}
	return now
}

// newest returns the certificate of the files, or the former one if they cannot be used. The caller holds p.mu.
func (p *Pair) newest() *tls.Certificate {
	looked, err := p.look()
	if err != nil { // they are read again as soon as the file system answers
		if !errors.Is(p.refused, os.ErrDeadlineExceeded) {
			p.log.Warn("the certificate cannot be examined", "cert", p.cert, "key", p.key, "error", err)
		}
		p.looked, p.refused = [2]os.FileInfo{}, err
		return p.now
	}
	if file.Same(looked[0], p.looked[0]) && file.Same(looked[1], p.looked[1]) {
		return p.now
	}
	now, err := file.KeyPair(p.cert, p.key)
	p.looked, p.refused = looked, err
	if err != nil {
		p.log.Warn("the new certificate cannot be used", "cert", p.cert, "key", p.key, "error", err)
		return p.now
	}
	p.now = &now
	return p.now
}

// State returns the certificate in use, the path of its file, and why the present contents of the files are not in use; nil: they are.
func (p *Pair) State() (path string, now *tls.Certificate, refused error) {
	now = p.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cert, now, p.refused
}
