package admin

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	users "os/user"
	"strconv"

	"github.com/penstock/penstock/proxy/internal/keypair"
	"github.com/penstock/penstock/proxy/sockopt"
)

// Access is an address of the API, and the conditions under which its clients may read and change.
// The zero Access is no address.
type Access struct {
	Bind string // as [ParseAddress] takes it
	// Group is the name or the number of a group of users. Its processes may read over a unix socket,
	// whose mode is 0666 then unless the address has another one. "": none.
	Group string
	// ReadToken and ChangeToken are the tokens of TCP. A client with one of them may read, or read
	// and change. "": there is none.
	ReadToken, ChangeToken string
	// Cert and Key are the files of TLS, which are read again when they have changed; "": there is none.
	Cert, Key string
	// ClientCA is the file of the authorities of clients' certificates; a client that has one may read
	// and change. "": no certificate is asked for.
	ClientCA string
}

// ErrAccess is wrapped by the error of an [Access] that would be open to more clients than it may be.
var ErrAccess = errors.New("open to too many")

// conditions are those of an Access, ready for use. They do not change.
type conditions struct {
	group        *uint32            // nil: none
	read, change *[sha256.Size]byte // of the tokens; nil: there is none
	pair         *keypair.Pair      // nil: there is no TLS
	tls          *tls.Config        // the same
	authorities  *x509.CertPool     // nil: none
}

// open reads the files of an Access, and checks it.
func (a *Access) open(log *slog.Logger) (addr sockopt.Address, c *conditions, err error) {
	if addr, err = ParseAddress(a.Bind); err != nil {
		return addr, nil, err
	}
	if err := a.check(addr); err != nil {
		return addr, nil, err
	}
	if a.Group != "" && !hasMode(a.Bind) {
		addr.Mode = groupMode
	}
	c = &conditions{read: digest(a.ReadToken), change: digest(a.ChangeToken)}
	if c.group, err = groupOf(a.Group); err != nil {
		return addr, nil, err
	}
	if a.Cert == "" {
		return addr, c, nil
	}
	if c.pair, err = keypair.New(a.Cert, a.Key, log); err != nil {
		return addr, nil, err
	}
	if c.authorities, err = authorities(a.ClientCA); err != nil {
		return addr, nil, err
	}
	c.tls = &tls.Config{
		GetCertificate: c.pair.Get, MinVersion: tls.VersionTLS12, CipherSuites: keypair.CipherSuites(), NextProtos: []string{"http/1.1"},
		// Certificates are verified with each request, whose answer has the reason of a refusal. A
		// session that is resumed would keep the result of an earlier configuration.
		ClientAuth: tls.RequestClientCert, SessionTicketsDisabled: true,
	}
	return addr, c, nil
}

// check returns why the address would be open to too many.
func (a *Access) check(addr sockopt.Address) error {
	switch {
	case addr.Network == "unix":
		return nil
	case a.Cert == "" && addr.Private() != nil:
		return fmt.Errorf("%s: %w: without TLS, tokens would cross the network as clear text: write 127.0.0.1:PORT or unix:/path, or add tls", addr, ErrAccess)
	case a.ReadToken == "" && a.ChangeToken == "" && a.ClientCA == "":
		return fmt.Errorf("%s: %w: everybody who reaches it could change everything: write unix:/path, or add a token or tls with client_ca", addr, ErrAccess)
	}
	return nil
}

// digest is that of a token, of which one is compared in constant time; nil if there is none.
func digest(token string) *[sha256.Size]byte {
	if token == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(token))
	return &sum
}

// groupOf returns the ID of a group; nil if none is named.
func groupOf(name string) (*uint32, error) {
	if name == "" {
		return nil, nil
	}
	number := name
	if g, err := users.LookupGroup(name); err == nil {
		number = g.Gid
	}
	id, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("there is no group %q on this host: write the name of one, or its number", name)
	}
	gid := uint32(id)
	return &gid, nil
}

// authorities reads certificates of authorities; nil if no file is named.
func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("authorities: %s has no certificate: write a PEM file", file)
	}
	return pool, nil
}

// credentials are those of a successor that has the same Access.
func (a *Access) credentials() *Credentials {
	c := &Credentials{Token: a.ChangeToken, Cert: a.Cert, Key: a.Key, Own: a.Cert}
	if c.Token == "" {
		c.Token = a.ReadToken
	}
	return c
}
