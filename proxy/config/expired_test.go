package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/config"
)

// TestExpiredCertificates: a certificate that has expired, or is not valid yet, is a warning, which a start logs.
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
	for want, from := range map[string]time.Duration{"it has expired": -2 * time.Hour, "it is not valid before": time.Hour, "": -time.Minute} {
		of := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(from + time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		cfg, problems := config.LoadTree(config.Tree{
			"/etc/p.yaml": `
listeners: [{name: l, bind: ":1", upstream: u, tls: {certificates: [{cert: c.pem, key: k.pem}]}}]
upstreams: [{name: u, endpoints: ["h:1"]}]`,
			"/etc/c.pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
			"/etc/k.pem": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
		}, "/etc/p.yaml", variables())
		switch {
		case len(problems) > 0:
			t.Error(problems)
		case want == "" && len(cfg.Warnings) > 0, want != "" && (len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings[0].Error(), want)):
			t.Errorf("valid from %v on: the warnings %v", from, cfg.Warnings)
		}
	}
}
