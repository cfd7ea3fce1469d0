package clienthello_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"testing"

	"github.com/penstock/penstock/proxy/clienthello"
)

// TestEncrypted: of an encrypted hello the outer name is returned.
func TestEncrypted(t *testing.T) {
	b := says(t, &tls.Config{
		ServerName:                     "secret.example.com",
		MinVersion:                     tls.VersionTLS13,
		EncryptedClientHelloConfigList: configList(t, "front.example.com"),
	})
	got, err := clienthello.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if got.ServerName != "front.example.com" {
		t.Errorf("got %q, want the outer name", got.ServerName)
	}
}

// configList makes an ECHConfigList (RFC 9849, 4) with the outer name.
func configList(t *testing.T, name string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pub := key.PublicKey().Bytes()
	contents := []byte{7, 0, 0x20} // config id, DHKEM(X25519, HKDF-SHA256)
	contents = append(binary.BigEndian.AppendUint16(contents, uint16(len(pub))), pub...)
	contents = append(contents, 0, 4, 0, 1, 0, 1, 0) // HKDF-SHA256, AES-128-GCM; no limit of the name's length
	contents = append(append(contents, byte(len(name))), name...)
	contents = append(contents, 0, 0) // no extensions
	config := binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(contents)))
	config = append(config, contents...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
}
