package tlsterm

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/penstock/penstock/proxy/internal/file"
)

// A parsedPair is the contents of a file or two. It is never changed.
type parsedPair struct {
	cert *tls.Certificate // of a pair
	pool *x509.CertPool   // of authorities
	raw  []byte           // of authorities: the file
	sum  [sha256.Size]byte
}

// A pairSpec names the files, and the kind of their contents.
type pairSpec struct {
	paths [2]string // the second may be ""
	make  func(p [2]string, text [2][]byte) (*parsedPair, error)
}

func pairOf(cert, key string) pairSpec { return pairSpec{[2]string{cert, key}, makePair} }

func poolOf(path string) pairSpec { return pairSpec{[2]string{path}, makePool} }

// read parses the present contents of the files.
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
		return nil, fmt.Errorf("%s: there is no certificate in it", p[0])
	}
	return &parsedPair{pool: pool, raw: bytes.Clone(text[0])}, nil
}

// maxFile is how large a file may be. All authorities of a distribution are 220 KB.
const maxFile = 4 << 20

// readFile reads a file, but not one that would make it wait, or has no end.
func readFile(path string) ([]byte, error) {
	text, err := file.Read(path, maxFile)
	switch {
	case errors.Is(err, file.ErrIrregular):
		return nil, fmt.Errorf("%s: it is no regular file", path)
	case errors.Is(err, file.ErrTooLarge):
		return nil, fmt.Errorf("%s: it is larger than %d MiB", path, maxFile>>20)
	case err != nil:
		return nil, inFile(path, err)
	}
	return text, nil
}

// inFile puts the file's name first, as in all errors of this package, and once.
func inFile(path string, err error) error {
	var perr *os.PathError
	if errors.As(err, &perr) {
		err = perr.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}
