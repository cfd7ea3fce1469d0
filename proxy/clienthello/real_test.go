package clienthello_test

import (
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/clienthello"
)

// TestRealClients reads the hellos of other TLS libraries than Go's: OpenSSL's, and that of
// curl.
func TestRealClients(t *testing.T) {
	many := slices.Repeat([]string{strings.Repeat("p", 90)}, 200) // more than a record holds
	for name, test := range map[string]struct {
		command []string // the address is appended
		want    clienthello.Info
	}{
		"openssl":                {[]string{"openssl", "s_client", "-servername", "Shop.example.com", "-alpn", "h2,http/1.1", "-connect"}, clienthello.Info{ServerName: "shop.example.com", ALPN: []string{"h2", "http/1.1"}}},
		"openssl, 200 protocols": {[]string{"openssl", "s_client", "-servername", "a.test", "-alpn", strings.Join(many, ","), "-connect"}, clienthello.Info{ServerName: "a.test", ALPN: many}},
		"openssl, no name":       {[]string{"openssl", "s_client", "-noservername", "-connect"}, clienthello.Info{}},
		"openssl, 1.2":           {[]string{"openssl", "s_client", "-tls1_2", "-servername", "a.test", "-connect"}, clienthello.Info{ServerName: "a.test"}},
		"curl":                   {[]string{"curl", "--silent", "--noproxy", "*", "--http1.1", "--connect-to", "a.test:443:"}, clienthello.Info{ServerName: "a.test", ALPN: []string{"http/1.1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := exec.LookPath(test.command[0])
			if err != nil && os.Getenv("CI") != "" {
				t.Fatalf("%s is not installed", test.command[0])
			}
			if err != nil {
				t.Skipf("%s is not installed", test.command[0])
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			check(t, err)
			defer l.Close()
			args := slices.Clone(test.command[1:])
			if test.command[0] == "curl" {
				args[len(args)-1] += l.Addr().String()
				args = append(args, "https://a.test/")
			} else {
				args = append(args, l.Addr().String())
			}
			cmd := exec.Command(path, args...)
			check(t, cmd.Start())
			defer cmd.Wait()
			got := accepted(t, l)
			if got.ServerName != test.want.ServerName || !slices.Equal(got.ALPN, test.want.ALPN) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// accepted reads the hello of the next client, and closes the connection.
func accepted(t *testing.T, l net.Listener) clienthello.Info {
	t.Helper()
	check(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(condition.Patience)))
	c, err := l.Accept()
	check(t, err)
	defer c.Close()
	check(t, c.SetDeadline(time.Now().Add(condition.Patience)))
	var b []byte
	for {
		need, err := clienthello.Length(b)
		check(t, err)
		if need <= len(b) {
			break
		}
		more := make([]byte, need-len(b))
		_, err = io.ReadFull(c, more)
		check(t, err)
		b = append(b, more...)
	}
	info, err := clienthello.Parse(b)
	check(t, err)
	return info
}
