package config

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
)

// maxPEM is how large a file of certificates may be; all authorities of the system are
// about 250 KiB.
const maxPEM = 4 << 20

func (k *checker) termination(t *ListenerTLS) {
	if len(t.Certificates) == 0 && k.given(&t.Certificates) {
		k.complainAt(k.at(&t.Certificates, t), "write certificates: [{cert: a.pem, key: a.key}], or leave tls out", "TLS cannot be terminated without a certificate")
	}
	for i := range t.Certificates {
		c := &t.Certificates[i]
		k.pair(&c.Cert, &c.Key, c)
	}
	k.authorities(&t.ClientCA, t)
}

// pair reads a certificate and its key as they will be used.
func (k *checker) pair(cert, key *Path, section any) {
	if *cert == "" || *key == "" {
		return
	}
	id := Certificate{Cert: *cert, Key: *key}
	c, ok := k.pairs[id]
	if !ok {
		c = k.readPair(id)
		k.pairs[id] = c
	}
	if c == nil {
		return
	}
	at := k.at(cert, section)
	if strings.Contains(c.message, string(*key)) && !strings.Contains(c.message, string(*cert)+":") {
		at = k.at(key, section)
	}
	k.complainAt(at, c.fix, "%s", c.message)
}

func (k *checker) readPair(id Certificate) *complaint {
	cert, err := k.read(string(id.Cert), maxPEM)
	if err != nil {
		return complain(mend(err, maxPEM), "%v", err)
	}
	key, err := k.read(string(id.Key), maxPEM)
	if err != nil {
		return complain(mend(err, maxPEM), "%v", err)
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		return complain("write a certificate and its private key, both PEM",
			"%s and %s are no pair: %s", id.Cert, id.Key, strings.TrimPrefix(err.Error(), "tls: "))
	}
	return nil
}

// authorities reads a file of certificates that others are verified by.
func (k *checker) authorities(path *Path, section any) {
	if *path == "" {
		return
	}
	data, err := k.read(string(*path), maxPEM)
	switch {
	case err != nil:
		k.complainAt(k.at(path, section), mend(err, maxPEM), "%v", err)
	case !x509.NewCertPool().AppendCertsFromPEM(data):
		k.complainAt(k.at(path, section), "write a PEM file of certificates", "there is no certificate in %s", *path)
	}
}
