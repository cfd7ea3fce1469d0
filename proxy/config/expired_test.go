package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/config"
)

// TestExpiredCertificates: a certificate or an authority that has expired, or is not valid yet, is a warning, which a start logs.
func TestExpiredCertificates(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	now := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, now, now, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	valid := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	for want, from := range map[string]time.Duration{"has expired": -2 * time.Hour, "is not valid before": time.Hour, "": -time.Minute} {
		of := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "old"}, NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(from + time.Hour),
		}
		der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		cert := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
		for keys, subject := range map[string][2]string{
			"tls: {certificates: [{cert: c.pem, key: k.pem}]}, upstream: u}]\nupstreams: [{name: u, endpoints: [\"h:1\"]}]":                   {"the certificate in /etc/c.pem: it "},
			"tls: {certificates: [{cert: v.pem, key: k.pem}], client_ca: c.pem}, upstream: u}]\nupstreams: [{name: u, endpoints: [\"h:1\"]}]": {"1 of the 1 authorities in /etc/c.pem are not accepted: CN=old "},
			"upstream: u}]\nupstreams: [{name: u, endpoints: [\"h:1\"], tls: {ca: both.pem}}]":                                                {"2 of the 3 authorities in /etc/both.pem are not accepted: CN=old ", ", and 1 more"},
		} {
			cfg, problems := config.LoadTree(config.Tree{
				"/etc/p.yaml": "listeners: [{name: l, bind: \":1\", " + keys,
				"/etc/c.pem":  cert, "/etc/v.pem": valid, "/etc/both.pem": cert + valid + cert,
				"/etc/k.pem": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
			}, "/etc/p.yaml", variables())
			switch {
			case len(problems) > 0:
				t.Error(problems)
			case want == "" && len(cfg.Warnings) > 0,
				want != "" && (len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings[0].Error(), subject[0]+want) || !strings.Contains(cfg.Warnings[0].Error(), subject[1])):
				t.Errorf("%s, valid from %v on: the warnings %v", keys, from, cfg.Warnings)
			}
		}
	}
}
