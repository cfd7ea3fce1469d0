package keypair

import "crypto/tls"

// CipherSuites returns the cipher suites of TLS 1.2 that clients are offered: suites that authenticate what
// they encrypt. Suites with CBC are left out, because its padding was attacked again and again. Suites of TLS
// 1.3 are not listed, and always on. The caller may change the list.
func CipherSuites() []uint16 {
	return []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	}
}
