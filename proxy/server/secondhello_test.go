package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// Two names of the same length. The server has both, and the client may have only the first.
const (
	publicName = "public.example"
	adminName  = "admin1.example"
)

// An openSSL is a running server of OpenSSL and what it has said.
type openSSL struct {
	address string
	mu      sync.Mutex
	said    bytes.Buffer
}

func (s *openSSL) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.Write(b)
}

func (s *openSSL) saw(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.said.String(), what)
}

// startOpenSSL starts a server of TLS 1.3 that wants a key share of P-384 alone, so that it asks most clients for a second hello.
func startOpenSSL(t *testing.T, args ...string) *openSSL {
	t.Helper()
	for _, program := range []string{"openssl", "stdbuf", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed: %v", program, err)
		}
	}
	dir := t.TempDir()
	for prefix, name := range map[string]string{"public": publicName, "admin": adminName} {
		cert, key := certificate.New(t, name)
		for file, content := range map[string]string{prefix + ".pem": cert, prefix + ".key": key} {
			check(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
		}
	}
	s := &openSSL{address: "127.0.0.1:" + sockets.Port(t)}
	cmd := exec.Command("stdbuf", append([]string{
		"-oL", "openssl", "s_server", "-accept", s.address, "-cert", "public.pem", "-key", "public.key", "-cert2", "admin.pem", "-key2", "admin.key",
		"-servername", adminName, "-groups", "P-384", "-tls1_3",
	}, args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, s, s
	in, err := cmd.StdinPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return s
}

// asksAgain is a client's connection: the names in its bytes are others from the second hello on. With early set a copy of the first hello
// for the other name goes in the segment of the first.
type asksAgain struct {
	net.Conn
	early, begun bool
}

func (c *asksAgain) Write(b []byte) (int, error) {
	other := bytes.ReplaceAll(b, []byte(publicName), []byte(adminName))
	switch {
	case c.begun:
	case c.early:
		other = append(bytes.Clone(b), other...)
	default:
		other = b
	}
	c.begun = true
	_, err := c.Conn.Write(other)
	return len(b), err
}

// wantsAgain is the configuration of a client whose key share the server does not want.
func wantsAgain() *tls.Config {
	return &tls.Config{ServerName: publicName, InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP384}}
}

// TestSecondHelloOfOpenSSL: a client that was asked for a second hello by a HelloRetryRequest, and asks for another name in it, is refused, and
// the server never sees the name; it takes the name of the second hello, so it would have served the client. Honest clients are served, whose
// early data is taken or refused as ever.
func TestSecondHelloOfOpenSSL(t *testing.T) {
	t.Parallel()
	web, early := startOpenSSL(t, "-www"), startOpenSSL(t, "-early_data")
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: plain, bind: "127.0.0.1:0", routes: [{match: {sni: [%[3]s], source: [10.0.0.0/8]}, upstream: web}, {match: {sni: [%[3]s]}, upstream: nowhere}], upstream: web}
  - {name: preface, bind: "127.0.0.1:0", accept_proxy: {from: [127.0.0.0/8]}, routes: [{match: {sni: [%[4]s]}, upstream: web}]}
  - {name: by-balance, bind: "127.0.0.1:0", upstream: hashed}
  - {name: early, bind: "127.0.0.1:0", routes: [{match: {sni: [%[4]s]}, upstream: early}]}
upstreams:
  - {name: web, endpoints: [%[1]q], health_check: off}
  - {name: hashed, endpoints: [%[1]q], health_check: off, balance: maglev, balance_on: sni}
  - {name: early, endpoints: [%[2]q], health_check: off}
  - {name: nowhere, endpoints: ["127.0.0.1:1"], health_check: off}`, web.address, early.address, adminName, publicName))
	request := "GET / HTTP/1.0\r\n\r\n"
	dial := func(at string) net.Conn {
		c := client(t, r.At(at))
		if at == "preface" {
			_, err := io.WriteString(c, "PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\n")
			check(t, err)
		}
		return c
	}
	for _, at := range []string{"plain", "preface", "by-balance"} {
		r.Until("the server listens, and an honest client of crypto/tls is served", func() bool {
			c := tls.Client(dial(at), wantsAgain())
			defer c.Close()
			if c.Handshake() != nil {
				return false
			}
			if state := c.ConnectionState(); !state.HelloRetryRequest {
				t.Fatal("the server does not ask for a second hello: the test does not test its claim")
			}
			_, _ = io.WriteString(c, request)
			answer, _ := io.ReadAll(c)
			return bytes.HasPrefix(answer, []byte("HTTP/1.0 200"))
		})
		for _, early := range []bool{false, true} {
			before := r.Refused(at, "second_hello")
			c := tls.Client(&asksAgain{Conn: dial(at), early: early}, wantsAgain())
			if err := c.Handshake(); err == nil {
				t.Errorf("%s, early %v: it is served", at, early)
			}
			r.Until("it is refused", func() bool { return r.Refused(at, "second_hello") == before+1 })
			c.Close()
		}
	}
	if web.saw(adminName) {
		t.Error("the server was asked for the other name")
	}
	if !web.saw(publicName) {
		t.Error("the server prints no names: the test does not test its claim")
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run := func(in string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.WaitDelay = time.Second
		cmd.Stdin = strings.NewReader(in)
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	_, port, err := net.SplitHostPort(r.At("plain"))
	check(t, err)
	if got := run("", "curl", "-sk", "--tlsv1.3", "--curves", "X25519:P-384", "--resolve", publicName+":"+port+":127.0.0.1", "-o", "/dev/null", "-w", "%{http_code}", "https://"+publicName+":"+port+"/"); got != "200" {
		t.Errorf("curl: %q", got)
	}
	ofOpenSSL := []string{"openssl", "s_client", "-connect", r.At("plain"), "-servername", publicName, "-groups", "X25519:P-384", "-ign_eof"}
	if got := run(request, ofOpenSSL...); !strings.Contains(got, "HTTP/1.0 200") {
		t.Errorf("s_client: %q", got)
	}

	session, data := filepath.Join(t.TempDir(), "session"), filepath.Join(t.TempDir(), "early")
	check(t, os.WriteFile(data, []byte("said early\n"), 0o600))
	again := func(groups string, args ...string) string {
		return run("Q\n", append([]string{"sh", "-c", `(sleep 0.5; echo Q) | openssl s_client "$@"`, "sh", "-connect", r.At("early"), "-servername", publicName, "-groups", groups}, args...)...)
	}
	r.Until("the server gives a ticket", func() bool {
		again("P-384", "-sess_out", session)
		_, err := os.Stat(session)
		return err == nil
	})
	if got := again("P-384", "-sess_in", session, "-early_data", data); !strings.Contains(got, "Early data was accepted") {
		t.Errorf("early data: %s", got)
	}
	if !early.saw("said early") {
		t.Errorf("the server has not got the early data")
	}
	if got := again("X25519:P-384", "-sess_in", session, "-early_data", data); !strings.Contains(got, "Early data was rejected") {
		t.Errorf("early data before a second hello: %s", got)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
