package tlsterm_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
)

// TestTorn: the end of a stream is an end only if the peer has sent close_notify, or the stream ends between two records
// after our own, whichever side began the handshake.
func TestTorn(t *testing.T) {
	a := newAuthority(t, "test")
	pair := a.pair("a.test")
	server := newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{pair}})
	client := newClient(t, tlsterm.ClientConfig{CA: a.file, SNI: "a.test"})
	trust := &tls.Config{ServerName: "a.test", RootCAs: a.pool()}
	for name, end := range map[string]struct {
		do   func(raw *net.TCPConn, c *tls.Conn) error
		want error // nil: an end of file
	}{
		"close_notify":                   {func(_ *net.TCPConn, c *tls.Conn) error { return c.CloseWrite() }, nil},
		"close_notify and the end":       {func(_ *net.TCPConn, c *tls.Conn) error { return c.Close() }, nil},
		"between two records":            {func(raw *net.TCPConn, _ *tls.Conn) error { return raw.CloseWrite() }, tlsterm.ErrTorn},
		"between two records after ours": {func(raw *net.TCPConn, _ *tls.Conn) error { return raw.CloseWrite() }, nil},
		"within a record": {func(raw *net.TCPConn, _ *tls.Conn) error {
			_, err := raw.Write([]byte{23, 3, 3, 0, 100, 1, 2, 3})
			return errors.Join(err, raw.CloseWrite())
		}, tlsterm.ErrTorn},
		"within a record after ours": {func(raw *net.TCPConn, _ *tls.Conn) error {
			_, err := raw.Write([]byte{23, 3, 3, 0, 100, 1, 2, 3})
			return errors.Join(err, raw.CloseWrite())
		}, tlsterm.ErrTorn},
		"within a record's header": {func(raw *net.TCPConn, _ *tls.Conn) error {
			_, err := raw.Write([]byte{23, 3})
			return errors.Join(err, raw.CloseWrite())
		}, tlsterm.ErrTorn},
		"reset": {func(raw *net.TCPConn, _ *tls.Conn) error { return errors.Join(raw.SetLinger(0), raw.Close()) }, syscall.ECONNRESET},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			for _, role := range []string{"of a client", "of an endpoint"} {
				t.Run(tls.VersionName(version)+"/"+name+" "+role, func(t *testing.T) {
					theirs := trust.Clone()
					theirs.Certificates, theirs.MaxVersion = load(t, pair), version
					far, near := sockets.TCPPair(t)
					peer := tls.Client(far, theirs)
					shake := server.Handshake
					if role == "of an endpoint" {
						peer = tls.Server(far, theirs)
						shake = func(ctx context.Context, c net.Conn) (*tlsterm.Conn, error) {
							return client.Handshake(ctx, c, tlsterm.Peer{})
						}
					}
					sent := make(chan error, 1)
					go func() {
						_, err := peer.Write([]byte("data"))
						if err == nil {
							err = end.do(far, peer)
						}
						sent <- err
					}()
					conn, err := shake(t.Context(), near)
					must(t, err)
					if strings.HasSuffix(name, "after ours") {
						must(t, conn.CloseWrite())
					}
					got, err := io.ReadAll(conn)
					if string(got) != "data" && name != "reset" || !errors.Is(err, end.want) || end.want != nil && !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("read %q, %v, want %v", got, err, end.want)
					}
					if _, again := conn.Read(make([]byte, 1)); name != "reset" && (again == io.EOF) != (end.want == nil) {
						t.Errorf("read again: %v", again)
					}
					must(t, <-sent)
				})
			}
		}
	}
}
