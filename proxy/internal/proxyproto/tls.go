package proxyproto

import (
	"crypto/tls"
	"encoding/binary"
)

// A TLS describes the TLS connection of a client, as the TLV of type SSL and those within (the
// specification, 2.2.6).
type TLS struct {
	Version string // "TLSv1.3"
	Cipher  string // "TLS_AES_128_GCM_SHA256"

	// CommonName is of the verified certificate that the client has shown in this session or
	// in one that this resumes. Certificate is set if there is one.
	Certificate bool
	CommonName  string
}

// The bits of the field client, and the types within.
const (
	clientSSL      = 0x01
	clientCertConn = 0x02
	clientCertSess = 0x04

	subtypeVersion    = 0x21
	subtypeCommonName = 0x22
	subtypeCipher     = 0x23
)

// TLSOf describes a terminated connection.
func TLSOf(cs *tls.ConnectionState) *TLS {
	t := &TLS{Cipher: tls.CipherSuiteName(cs.CipherSuite)}
	switch cs.Version {
	case tls.VersionTLS10:
		t.Version = "TLSv1"
	case tls.VersionTLS11:
		t.Version = "TLSv1.1"
	case tls.VersionTLS12:
		t.Version = "TLSv1.2"
	default:
		t.Version = "TLSv1.3"
	}
	if len(cs.PeerCertificates) > 0 {
		t.Certificate = true
		t.CommonName = cs.PeerCertificates[0].Subject.CommonName
	}
	return t
}

func (t *TLS) put(w *writer) {
	size := 5 + 3*tlvHeader + len(t.Version) + len(t.Cipher) + len(t.CommonName)
	if !w.room(size) {
		return
	}
	at := len(w.b)
	client, verify := byte(clientSSL), uint32(1) // 0: a certificate was shown and verified
	if t.Certificate {
		client, verify = clientSSL|clientCertConn|clientCertSess, 0
	}
	w.b = append(w.begin(TypeSSL, 0), client)
	w.b = binary.BigEndian.AppendUint32(w.b, verify)
	w.put(subtypeVersion, t.Version)
	if t.CommonName != "" {
		w.put(subtypeCommonName, t.CommonName)
	}
	if t.Cipher != "" {
		w.put(subtypeCipher, t.Cipher)
	}
	binary.BigEndian.PutUint16(w.b[at+1:], uint16(len(w.b)-at-tlvHeader))
}
