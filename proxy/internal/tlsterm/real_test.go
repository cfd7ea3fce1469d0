package tlsterm_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
)

// openssl runs s_client against a server that answers "served" to each client, and
// returns its output.
func openssl(t *testing.T, s *tlsterm.Server, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("openssl")
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal("openssl is not installed")
	}
	if err != nil {
		t.Skip("openssl is not installed")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	sockets.Serve(t, l, func(c net.Conn) {
		if conn, err := s.Handshake(context.Background(), c); err == nil {
			io.WriteString(conn, "served\n")
			conn.Close()
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append([]string{"s_client", "-connect", l.Addr().String(), "-verify_return_error", "-ign_eof"}, args...)...)
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	_ = cmd.Run() // its output is more specific than its status
	return said.String()
}

// TestOpenSSL has another implementation as the client.
func TestOpenSSL(t *testing.T) {
	a, clients := newAuthority(t, "test"), newAuthority(t, "clients")
	mine, sess := clients.pair("me"), filepath.Join(t.TempDir(), "session")
	pairs := []tlsterm.Pair{a.pair("other.test"), a.pairOf(rsaKey(t), "*.a.test")}
	plain := tlsterm.Config{Name: "web", Certificates: pairs, ALPN: []string{"h2"}, Tickets: tlsterm.NewTickets(nil)}
	mutual := plain
	mutual.ClientCA = clients.file
	base := []string{"-CAfile", a.file, "-servername", "x.a.test", "-verify_hostname", "x.a.test"}
	for _, test := range []struct { // in this order: a session is kept for the next
		name string
		cfg  tlsterm.Config
		args []string
		want []string
	}{
		{"1.2", plain, []string{"-tls1_2"}, []string{"served", "TLSv1.2", "Verify return code: 0"}},
		{"1.3", plain, []string{"-tls1_3", "-alpn", "x,h2"}, []string{"served", "TLSv1.3", "ALPN protocol: h2"}},
		{"1.1", plain, []string{"-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"}, []string{"alert protocol version"}},
		{"no common protocol", plain, []string{"-alpn", "x"}, []string{"alert no application protocol"}},
		{"its certificate", mutual, []string{"-cert", mine.Cert, "-key", mine.Key, "-sess_out", sess}, []string{"served", "New, TLSv1.3"}},
		{"resumed after a reload", mutual, []string{"-cert", mine.Cert, "-key", mine.Key, "-sess_in", sess}, []string{"served", "Reused, TLSv1.3"}},
		{"no certificate", mutual, nil, []string{"certificate required"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			said := openssl(t, newServer(t, test.cfg), append(append([]string{}, base...), test.args...)...)
			for _, want := range test.want {
				if !strings.Contains(said, want) {
					t.Errorf("it does not write %q:\n%s", want, said)
				}
			}
		})
	}
}
