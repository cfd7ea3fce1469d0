package scrape

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// A pair is a certificate and its key in files, which are read again when they have changed. If they cannot
// be used then, the former ones stay in use.
type pair struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	now    *tls.Certificate
	looked [2]stamp
}

// A stamp differs between two contents of a file.
type stamp struct {
	at   time.Time
	size int64
}

func newPair(cert, key string, log *slog.Logger) (*pair, error) {
	p := &pair{cert: cert, key: key, log: log}
	looked := p.look()
	now, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s, key %s: %w", cert, key, err)
	}
	p.now, p.looked = &now, looked
	return p, nil
}

// look returns the stamps of the files; those that are not there have none.
func (p *pair) look() (stamps [2]stamp) {
	for i, path := range []string{p.cert, p.key} {
		if info, err := os.Stat(path); err == nil {
			stamps[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return stamps
}

// get implements the function of that kind of [tls.Config].
func (p *pair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	looked := p.look()
	if looked == p.looked {
		return p.now, nil
	}
	now, err := tls.LoadX509KeyPair(p.cert, p.key)
	p.looked = looked
	if err != nil {
		p.log.Warn("the certificate of the metrics is not changed", "cert", p.cert, "key", p.key, "error", err)
		return p.now, nil
	}
	p.now = &now
	return p.now, nil
}
