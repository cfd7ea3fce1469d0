package tlsterm

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
)

var (
	errUncertified = errors.New("no certificate was asked for then, and one is required now")
	errOutdated    = errors.New("its version of TLS is not spoken any more")
)

// Accepts returns the reason that a client whose handshake is over, with this Server or
// another one, is not to be served by the present rules of this one on certificates and
// versions: an [*Error]. c is nil for a client that came without TLS. Of one connection it is
// called by one goroutine at a time.
func (s *Server) Accepts(c *Conn) error {
	st := s.state.Load()
	if c == nil {
		if st.config.ClientAuth == tls.RequireAndVerifyClientCert {
			return &Error{Kind: Uncertified, Peer: "from a client without TLS", Err: errUncertified}
		}
		return nil
	}
	if c.by == st {
		return nil
	}
	if kind, err := st.accepts(c.ConnectionState()); err != nil {
		return &Error{Kind: kind, Peer: "from " + address(c), Err: err}
	}
	c.by = st
	return nil
}

// accepts looks at a handshake as crypto/tls does at one of a client that shows its certificate
// (handshake_server.go, processCertsFromClient).
func (st *state) accepts(conn tls.ConnectionState) (FailureKind, error) {
	if conn.Version < st.config.MinVersion {
		return Version, errOutdated
	}
	if st.config.ClientAuth != tls.RequireAndVerifyClientCert {
		return Other, nil
	}
	if len(conn.PeerCertificates) == 0 {
		return Uncertified, errUncertified
	}
	opts := x509.VerifyOptions{
		Roots: st.config.ClientCAs, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, cert := range conn.PeerCertificates[1:] {
		opts.Intermediates.AddCert(cert)
	}
	_, err := conn.PeerCertificates[0].Verify(opts)
	return Uncertified, err
}
