package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"time"
)

// maxPEM is the largest size of a certificate file. All authorities of the system are about
// 250 KiB.
const maxPEM = 4 << 20

func (k *checker) termination(t *ListenerTLS) {
	if len(t.Certificates) == 0 && k.given(&t.Certificates) && !k.bad[&t.Certificates] {
		k.complainAt(k.at(&t.Certificates, t), "write certificates: [{cert: a.pem, key: a.key}], or leave tls out", "TLS cannot be terminated without a certificate")
	}
	for i := range t.Certificates {
		c := &t.Certificates[i]
		k.pair(&c.Cert, &c.Key, c)
	}
	k.authorities(&t.ClientCA, t)
}

// pair reads a certificate and its key as they will be used. If the pair was read before, the
// same complaints are reported at the new place.
func (k *checker) pair(cert, key *Path, section any) {
	id := Certificate{Cert: *cert, Key: *key}
	found, ok := k.pairs[id]
	if !ok {
		found = k.readPair(id)
		k.pairs[id] = found
		k.readable(key, section)
	}
	for _, of := range []struct {
		*complaint
		field *Path
	}{{found.cert, cert}, {found.key, key}} {
		if of.complaint != nil {
			k.complainAt(k.at(of.field, section), of.fix, "%s", of.message)
		}
	}
	if w := found.late; w != nil {
		k.warnAt(k.at(cert, section), w.fix, "%s", w.message)
	}
}

// readable warns of a private key that every user may read.
func (k *checker) readable(key *Path, section any) {
	if *key == "" {
		return
	}
	if mode, err := k.mode(string(*key)); err == nil && mode&0o007 != 0 { // an error was reported as the file was read
		k.warnAt(k.at(key, section), "chmod o= "+string(*key), "every user of this machine may use the private key %s (mode %#o)", *key, mode.Perm())
	}
}

// unpaired holds the complaints about a certificate and about its key; nil: none.
type unpaired struct {
	cert, key *complaint
	late      *complaint // a warning: the certificate is not valid now
}

// readPair reads the files of a pair. A missing file name was already reported.
func (k *checker) readPair(id Certificate) (found unpaired) {
	var cert, key []byte
	cert, found.cert = k.readPEM(id.Cert)
	key, found.key = k.readPEM(id.Key)
	if id.Cert == "" || id.Key == "" || found.cert != nil || found.key != nil {
		return found
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		found.key = complain("write a certificate and its private key, both PEM",
			"%s and %s are no pair: %s", id.Cert, id.Key, strings.TrimPrefix(err.Error(), "tls: "))
		return found
	}
	switch now := time.Now(); {
	case now.After(pair.Leaf.NotAfter):
		found.late = complain("renew it", "peers do not accept the certificate in %s: it has expired, at %s", id.Cert, pair.Leaf.NotAfter.Local().Format(time.DateTime))
	case now.Before(pair.Leaf.NotBefore):
		found.late = complain("wait, or issue another one", "peers do not accept the certificate in %s: it is not valid before %s", id.Cert, pair.Leaf.NotBefore.Local().Format(time.DateTime))
	}
	return found
}

func (k *checker) readPEM(path Path) ([]byte, *complaint) {
	if path == "" {
		return nil, nil
	}
	data, err := k.read(string(path), maxPEM)
	if err != nil {
		return nil, complain(mend(err, maxPEM), "%v", err)
	}
	return data, nil
}

// authorities reads a file of certificates that peers are verified by.
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
	default:
		if w := late(*path, data, time.Now()); w != nil {
			k.warnAt(k.at(path, section), w.fix, "%s", w.message)
		}
	}
}

// late returns the warning of authorities that are not valid at a time; nil: all are.
func late(path Path, data []byte, now time.Time) *complaint {
	all, bad := 0, []string(nil)
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		of, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil { // as AppendCertsFromPEM does
			continue
		}
		all++
		switch name := printable(of.Subject.String()); {
		case now.After(of.NotAfter):
			bad = append(bad, fmt.Sprintf("%s has expired, at %s", name, of.NotAfter.Local().Format(time.DateTime)))
		case now.Before(of.NotBefore):
			bad = append(bad, fmt.Sprintf("%s is not valid before %s", name, of.NotBefore.Local().Format(time.DateTime)))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	which := bad[0]
	if len(bad) > 1 {
		which += fmt.Sprintf(", and %d more", len(bad)-1)
	}
	return complain("put valid ones in their place, or leave them out", "certificates of %d of the %d authorities in %s are not accepted: %s", len(bad), all, path, which)
}
