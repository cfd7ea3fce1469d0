package tlsterm_test

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
)

// shaken returns the server's side of a connection whose handshake is over.
func shaken(t *testing.T, s *tlsterm.Server, client *tls.Config) *tlsterm.Conn {
	t.Helper()
	c, sc := sockets.TCPPair(t)
	failed := make(chan error, 1)
	go func() { failed <- tls.Client(c, client).Handshake() }()
	conn, err := s.Handshake(context.Background(), sc)
	must(t, errors.Join(err, <-failed))
	return conn
}

// TestAccepts: a client whose handshake is over is accepted by another server if that one would have
// accepted its certificate and its version, and by the same one as long as its authorities are the same.
func TestAccepts(t *testing.T) {
	a, old, young := newAuthority(t, "test"), newAuthority(t, "old"), newAuthority(t, "young")
	files := newFiles(t, &tlsterm.FilesConfig{Poll: time.Hour, Settle: 10 * time.Millisecond})
	server := func(ca string, version uint16) *tlsterm.Server {
		return newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{a.pair("a.test")}, ClientCA: ca, MinVersion: version, Files: files})
	}
	asks, asksOthers, plain, late := server(old.file, 0), server(young.file, 0), server("", 0), server("", tls.VersionTLS13)
	pair := old.pair("client.test")
	cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	must(t, err)
	client := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}, MaxVersion: tls.VersionTLS12}
	check := func(what string, err error, want tlsterm.FailureKind) {
		t.Helper()
		var failed *tlsterm.Error
		if (err != nil) != (want != tlsterm.Other) || err != nil && (!errors.As(err, &failed) || failed.Kind != want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	shown, hidden := shaken(t, asks, client), shaken(t, plain, client)
	check("another authority", asksOthers.Accepts(shown), tlsterm.Uncertified)
	check("none", plain.Accepts(shown), tlsterm.Other)
	check("the same again", server(old.file, 0).Accepts(shown), tlsterm.Other)
	check("a later version", late.Accepts(shown), tlsterm.Version)
	check("none was requested", asks.Accepts(hidden), tlsterm.Uncertified)
	check("none is requested", plain.Accepts(hidden), tlsterm.Other)
	check("no TLS, where a certificate is requested", asks.Accepts(nil), tlsterm.Uncertified)
	check("no TLS, where none is", plain.Accepts(nil), tlsterm.Other)

	same := shaken(t, asks, client)
	text, err := os.ReadFile(young.file)
	must(t, err)
	must(t, os.WriteFile(old.file, text, 0o600))
	eventually(t, "its file is read", func() bool { return asks.Accepts(same) != nil })
	check("the file is another", asks.Accepts(same), tlsterm.Uncertified)
}
