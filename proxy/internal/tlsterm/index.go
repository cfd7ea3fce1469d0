package tlsterm

import (
	"crypto/tls"
	"strings"
)

// An index finds the certificate for a name. It is never changed.
type index struct {
	byName map[string][]*tls.Certificate // "a.example.com", "*.example.com"
	first  []*tls.Certificate            // all with the names of the first one
}

// newIndex makes the index of certificates, in their order. There may be several for a
// name, of ECDSA and of RSA.
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

// names lists those that a certificate is for, in lower case, each once.
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

// get is a tls.Config's GetCertificate.
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

// fitting returns the first certificate whose key the client can check.
func fitting(certs []*tls.Certificate, hello *tls.ClientHelloInfo) *tls.Certificate {
	if len(certs) == 1 {
		return certs[0]
	}
	name := hello.ServerName
	defer func() { hello.ServerName = name }()
	hello.ServerName = "" // the name is decided
	for _, c := range certs {
		if hello.SupportsCertificate(c) == nil {
			return c
		}
	}
	return certs[0]
}
