package proxyproto_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
)

func TestMain(m *testing.M) { leak.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// need returns the path of a program. Without it the test is skipped, or fails where CI
// is set.
func need(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil && os.Getenv("CI") != "" {
		t.Fatalf("%s is not installed (Debian package %s)", program, program)
	}
	if err != nil {
		t.Skipf("%s is not installed (Debian package %s)", program, program)
	}
	return path
}

// run runs a program until the end of the test, and shows its output if the test fails.
func run(t *testing.T, listeners []net.Listener, command ...string) {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	for _, l := range listeners {
		f, err := l.(*net.TCPListener).File()
		must(t, err)
		defer f.Close()
		defer l.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	must(t, cmd.Start())
	t.Cleanup(func() {
		kill := time.AfterFunc(condition.Patience, func() { cmd.Process.Kill() })
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		kill.Stop()
		if t.Failed() {
			t.Logf("%s wrote:\n%s", command[0], said.String())
		}
	})
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	return l
}

// dial connects to a program that may not listen yet.
func dial(t *testing.T, network, address string) net.Conn {
	t.Helper()
	for end := time.Now().Add(condition.Patience); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial(network, address)
		if err == nil {
			t.Cleanup(func() { c.Close() })
			must(t, c.SetDeadline(time.Now().Add(condition.Patience)))
			return c
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// asked sends a header and a request, and returns the body of the response.
func asked(t *testing.T, socket string, head []byte) string {
	t.Helper()
	c := dial(t, "unix", socket)
	_, err := c.Write(append(head, "GET / HTTP/1.0\r\n\r\n"...))
	must(t, err)
	answer, err := io.ReadAll(c)
	must(t, err)
	_, body, _ := strings.Cut(string(answer), "\r\n\r\n")
	return strings.TrimSpace(body)
}

// connections are sent to verifiers; want is the part that they repeat.
var connections = map[string]struct {
	c    proxyproto.Connection
	want string
}{
	"IPv4":        {proxyproto.Connection{Source: v4, Destination: v4b}, "192.0.2.1 5555 198.51.100.2 443"},
	"IPv6":        {proxyproto.Connection{Source: v6, Destination: v6b}, "2001:db8::1 5555 2001:db8::2 443"},
	"one of each": {proxyproto.Connection{Source: v4, Destination: v6b}, "::ffff:192.0.2.1 5555 2001:db8::2 443"},
}

func TestHAProxyVerifies(t *testing.T) {
	haproxy := need(t, "haproxy")
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	run(t, nil, haproxy, "-db", "-f", write(t, filepath.Join(dir, "haproxy.cfg"), `
defaults
	mode http
	timeout client 20s
	timeout server 20s
	timeout connect 20s
frontend verifier
	bind unix@`+socket+` accept-proxy
	http-request return status 200 content-type text/plain lf-string "%[src] %[src_port] %[dst] %[dst_port] <%[fc_pp_authority]> <%[fc_pp_unique_id]>"
`))
	for name, test := range connections {
		t.Run(name, func(t *testing.T) {
			for _, version := range []int{1, 2} {
				if got := asked(t, socket, proxyproto.Append(nil, version, &test.c)); got != test.want+" <> <>" {
					t.Errorf("version %d: it read %q, want %q", version, got, test.want)
				}
			}
			c := test.c
			c.Authority, c.UniqueID, c.ALPN = "shop.example.com", []byte("77"), "h2"
			c.TLVs, c.TLS, c.Checksum = []byte("\xea\x00\x02xy"), &proxyproto.TLS{Version: "TLSv1.3", Cipher: "C"}, true
			if got := asked(t, socket, proxyproto.Append(nil, 2, &c)); got != test.want+" <shop.example.com> <77>" {
				t.Errorf("with TLVs it read %q", got)
			}
		})
	}
	t.Run("of the proxy itself", func(t *testing.T) {
		for _, version := range []int{1, 2} {
			if got := asked(t, socket, proxyproto.Append(nil, version, &proxyproto.Connection{Local: true})); !strings.Contains(got, "<>") {
				t.Errorf("version %d: it answers %q", version, got)
			}
		}
	})
	t.Run("wrong checksum", func(t *testing.T) {
		b := proxyproto.Append(nil, 2, &proxyproto.Connection{Source: v4, Destination: v4b, Checksum: true})
		b[len(b)-1]++
		c := dial(t, "unix", socket)
		_, err := c.Write(append(b, "GET / HTTP/1.0\r\n\r\n"...))
		must(t, err)
		if answer, _ := io.ReadAll(c); len(answer) > 0 {
			t.Errorf("it does not verify checksums: %q", answer)
		}
	})
}

// received reads a header from a socket, waiting each time for as many bytes as Length
// returns, and no more; then it reads the client's data.
func received(t *testing.T, l net.Listener, sent string) proxyproto.Info {
	t.Helper()
	must(t, l.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(condition.Patience)))
	c, err := l.Accept()
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(condition.Patience)))
	var p *proxyproto.Policy
	var b []byte
	for {
		n, err := p.Length(b)
		must(t, err)
		if n <= len(b) {
			break
		}
		more := make([]byte, n-len(b))
		if _, err := io.ReadFull(c, more); err != nil {
			t.Fatalf("%d bytes were requested, and there are only %q: %v", n, b, err)
		}
		b = append(b, more...)
	}
	var info proxyproto.Info
	if n, err := p.Parse(b, &info); err != nil || n != len(b) {
		t.Fatalf("%q: %d, %v", b, n, err)
	}
	rest := make([]byte, len(sent))
	if _, err := io.ReadFull(c, rest); err != nil || string(rest) != sent {
		t.Errorf("after the header %q, %v; want %q", rest, err, sent)
	}
	return info
}

func told(t *testing.T, info proxyproto.Info, c net.Conn, version int) {
	t.Helper()
	src, dst := netip.MustParseAddrPort(c.LocalAddr().String()), netip.MustParseAddrPort(c.RemoteAddr().String())
	if info.Version != version || info.Local || info.Source != src || info.Destination != dst {
		t.Errorf("version %d has %v to %v, want %v to %v", info.Version, info.Source, info.Destination, src, dst)
	}
}

func TestHAProxySends(t *testing.T) {
	haproxy := need(t, "haproxy")
	dir := t.TempDir()
	to, err := net.Listen("unix", filepath.Join(dir, "to"))
	must(t, err)
	defer to.Close()
	cert, key := certificate.New(t, "shop.example.com")
	listeners := []net.Listener{listen(t), listen(t), listen(t)}
	run(t, listeners, haproxy, "-db", "-f", write(t, filepath.Join(dir, "haproxy.cfg"), `
defaults
	mode tcp
	timeout client 20s
	timeout server 20s
	timeout connect 20s
	unique-id-format 77
listen one
	bind fd@3
	server s unix@`+dir+`/to send-proxy
listen two
	bind fd@4
	server s unix@`+dir+`/to send-proxy-v2 proxy-v2-options crc32c,unique-id
listen tls
	bind fd@5 ssl crt `+write(t, filepath.Join(dir, "cert.pem"), cert+key)+` alpn h2
	server s unix@`+dir+`/to send-proxy-v2-ssl-cn proxy-v2-options crc32c,authority,ssl-cipher
`))
	for i, version := range []int{1, 2} {
		c := dial(t, "tcp", listeners[i].Addr().String())
		io.WriteString(c, "hello")
		info := received(t, to, "hello")
		told(t, info, c, version)
		if id, ok := proxyproto.Find(info.TLVs, proxyproto.TypeUniqueID); version == 2 && (!ok || string(id) != "77") {
			t.Errorf("unique id %q, %v in %q", id, ok, info.TLVs)
		}
	}
	c := dial(t, "tcp", listeners[2].Addr().String())
	conn := tls.Client(c, &tls.Config{ServerName: "shop.example.com", InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	_, err = io.WriteString(conn, "hello")
	must(t, err)
	info := received(t, to, "hello")
	told(t, info, c, 2)
	if name, _ := proxyproto.Find(info.TLVs, proxyproto.TypeAuthority); string(name) != "shop.example.com" {
		t.Errorf("authority %q in %q", name, info.TLVs)
	}
	// The TLS TLV of HAProxy is equal to ours for the same connection.
	cs := conn.ConnectionState()
	cs.PeerCertificates = nil // the server's, which it does not send
	ours := proxyproto.Append(nil, 2, &proxyproto.Connection{Source: info.Source, Destination: info.Destination, TLS: proxyproto.TLSOf(&cs)})
	var again proxyproto.Info
	_, err = (*proxyproto.Policy)(nil).Parse(ours, &again)
	must(t, err)
	want, _ := proxyproto.Find(info.TLVs, proxyproto.TypeSSL)
	got, _ := proxyproto.Find(again.TLVs, proxyproto.TypeSSL)
	if parts(got) != parts(want) || len(want) == 0 {
		t.Errorf("of TLS we send %q, and HAProxy %q", got, want)
	}
}

// parts formats the TLV of type SSL, except the field verify: HAProxy sends 0 if no
// certificate was requested, and no receiver reads it then.
func parts(b []byte) (s string) {
	if len(b) < 5 {
		return fmt.Sprintf("%q", b)
	}
	found := map[proxyproto.Type]string{}
	for t, v := range proxyproto.All(b[5:]) {
		found[t] = string(v)
	}
	return fmt.Sprint(b[0], found)
}
