// Package certificate makes certificates for tests.
package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/must"
)

// New makes a certificate for names and for 127.0.0.1, valid for an hour, and its key, both in PEM. It is
// self-signed, so it is an authority too.
func New(t testing.TB, names ...string) (cert, key string) {
	t.Helper()
	return Until(t, time.Now().Add(time.Hour), names...)
}

// Until is New for a certificate that is valid until a given time, and since two hours before it.
func Until(t testing.TB, end time.Time, names ...string) (cert, key string) {
	t.Helper()
	private := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: end.Add(-2 * time.Hour), NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private))(t)
	keyDER := must.Get(x509.MarshalPKCS8PrivateKey(private))(t)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}
