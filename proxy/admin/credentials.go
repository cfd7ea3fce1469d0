package admin

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/penstock/penstock/proxy/sockopt"
)

// Credentials are those of a [Client] over TCP. The zero Credentials are none, and no TLS.
type Credentials struct {
	// Token is sent to the server (Authorization: Bearer); "": none.
	Token string
	// CA is the file of the authorities of the server's certificate, or [SystemCA]; "": no TLS, unless
	// there is Own.
	CA string
	// Cert and Key are the files of the certificate that the client shows; "": none.
	Cert, Key string
	// Own is the file of the server's own certificate, by which the client verifies it, whatever its name; "":
	// none. With its key a client may read and change.
	Own string
	// Known refuses the server at a unix socket unless its process is one of root, of the user of this process, or
	// of Owner: the socket was found, and not named.
	Known bool
	// Owner is the user to which root has given the directory of the socket; 0: none.
	Owner uint32
}

// verify returns why a server at a unix socket is not the one that is meant.
func (c *Credentials) verify(conn net.Conn) error {
	if !c.Known || conn.RemoteAddr().Network() != "unix" {
		return nil
	}
	u := userOf(conn)
	if u.trusted() || u.mayRead(int(c.Owner), wholeNamespace("uid")) {
		return nil
	}
	return fmt.Errorf("%w: a process of another user (%s) listens there: write --admin ADDRESS if you trust it", ErrStranger, u)
}

// SystemCA stands for the authorities of the system.
const SystemCA = "system"

// ErrCredentials is wrapped by the error of credentials that are not used at an address.
var ErrCredentials = errors.New("invalid credentials")

// secured reports whether TLS is used.
func (c *Credentials) secured() bool { return c.CA != "" || c.Own != "" }

// check returns why the credentials are not used at an address.
func (c *Credentials) check(addr sockopt.Address) error {
	switch {
	case addr.Network == "unix":
		return nil
	case !c.secured() && c.Cert != "":
		return fmt.Errorf("%w: %s: a certificate is shown with TLS alone: write --ca FILE, or --ca %s", ErrCredentials, addr, SystemCA)
	case !c.secured() && addr.Private() != nil:
		return fmt.Errorf("%w: %s is another machine, and without TLS anybody on the way could read and change: write --ca FILE, or --ca %s", ErrCredentials, addr, SystemCA)
	case strings.ContainsAny(c.Token, "\r\n"):
		return fmt.Errorf("%w: the token has several lines: write it in one", ErrCredentials)
	}
	return nil
}

// config makes the configuration of TLS; nil: none is used.
func (c *Credentials) config(name string) (*tls.Config, error) {
	if !c.secured() {
		return nil, nil
	}
	t := &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s, key %s: %w", c.Cert, c.Key, err)
		}
		t.Certificates = []tls.Certificate{pair}
		// Shown whatever authorities the server names: it has the last word.
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	switch {
	case c.Own != "":
		own, err := leafOf(c.Own)
		if err != nil {
			return nil, err
		}
		t.InsecureSkipVerify = true // VerifyConnection does it
		t.VerifyConnection = func(s tls.ConnectionState) error {
			if !s.PeerCertificates[0].Equal(own) {
				return fmt.Errorf("another certificate than that of %s", c.Own)
			}
			return nil
		}
	case c.CA != SystemCA:
		pool, err := authorities(c.CA)
		if err != nil {
			return nil, err
		}
		t.RootCAs = pool
	}
	return t, nil
}

// leafOf returns the first certificate of a file.
func leafOf(file string) (*x509.Certificate, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("certificate: %s has none: write a PEM file", file)
	}
	return x509.ParseCertificate(block.Bytes)
}
