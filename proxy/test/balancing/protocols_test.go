package balancing

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/smtp"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/admin"
)

// onePortFor is the listener of docs/first-bytes.md, with the addresses of real servers.
const onePortFor = `
listeners:
  - name: any
    bind: "127.0.0.1:0"
    preread_silence: 200ms
    routes:
      - {match: {sni: ["*.tenant.test"]}, upstream: tls}
      - {match: {protocol: [http2]}, upstream: http2}
      - {match: {path: [/api/*]}, upstream: api}
      - {match: {host: [shop.test, "*.shop.test"]}, upstream: shop}
      - {match: {protocol: [ssh]}, upstream: ssh}
      - {match: {user: [penstock], database: [postgres]}, upstream: postgres}
      - {match: {protocol: [redis]}, upstream: redis}
      - {match: {protocol: [silence]}, upstream: smtp}
  - name: shell
    bind: "127.0.0.1:0"
    preread_silence: 50ms
    routes: [{match: {protocol: [ssh, silence]}, upstream: ssh}]
    upstream: shop
upstreams:
`

// testProtocols: real clients of seven protocols come to one port, and each gets to its own server.
func testProtocols(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an sshd that runs as an ordinary user lets nobody in whose password it cannot look up")
	}
	curl, psql, cli := software.Need(t, "curl", "curl"), software.Need(t, "psql", "postgresql-client"), software.Need(t, "redis-cli", "redis-tools")
	var bundle strings.Builder
	site, cache, shell := newSite(t, "site", &bundle, "a.tenant.test"), newStore(t), newShell(t)
	ca := filepath.Join(software.Dir(t, nil), "ca.pem")
	must(t, writeFile(ca, bundle.String()))
	database, _, _ := newNodes(t)
	database.initdb()
	database.serve()
	text := onePortFor
	for name, at := range map[string]string{
		"tls": site.addr, "ssh": shell.addr, "postgres": database.addr, "redis": cache.addr, "smtp": mail(t),
		"http2": answering(t, "http2", "http2"), "api": answering(t, "", "api"), "shop": answering(t, "", "shop"),
	} {
		text += fmt.Sprintf("  - {name: %s, endpoints: [%q]}\n", name, at)
	}
	p := start(t, text)
	addr, host, port := p.at("any")
	fetch := func(args ...string) string {
		return strings.TrimSpace(software.Run(t, append([]string{curl, "-sS", "--noproxy", "*", "--max-time", "20"}, args...)...))
	}
	served := map[string]func() string{
		"site a.tenant.test TLSv1.3": func() string {
			return fetch("--cacert", ca, "--connect-to", "::"+addr, "https://a.tenant.test/")
		},
		"http2 HTTP/2.0 /api/": func() string {
			return fetch("--http2-prior-knowledge", "--connect-to", "::"+addr, "http://shop.test/api/")
		},
		"api HTTP/1.1 /api/a b": func() string { return fetch("--connect-to", "::"+addr, "http://other.test/%61pi/a%20b") },
		"shop HTTP/1.1 /":       func() string { return fetch("--connect-to", "::"+addr, "http://www.Shop.test/") },
		"logged in":             func() string { return shell.login(t, host, port) },
		"PONG":                  func() string { return strings.TrimSpace(software.Run(t, cli, "-h", host, "-p", port, "ping")) },
		"42": func() string {
			return strings.TrimSpace(software.Run(t, psql, "-qAtX", "-c", "SELECT 42", conninfo(addr)))
		},
		"mail.test": func() string {
			c, err := smtp.Dial(addr)
			must(t, err)
			must(t, c.Hello("client.test"))
			must(t, c.Quit())
			return "mail.test"
		},
	}
	for what, got := range served {
		if said := got(); said != what {
			t.Errorf("got %q, want %q", said, what)
		}
	}
	p.keys(shell)
	for _, args := range [][]string{{"http://other.test/"}, {"--path-as-is", "http://other.test/x/../api/"}} {
		if out, err := exec.Command(curl, append([]string{"-sS", "--noproxy", "*", "--max-time", "20", "--connect-to", "::" + addr}, args...)...).CombinedOutput(); err == nil {
			t.Errorf("%v: %s", args, out)
		}
	}
	p.Until("all are counted", func(s *admin.Status) bool {
		of := s.Listeners[0]
		return of.Name == "any" && of.Reasons["no_route"] == 1 && of.Reasons["first_bytes"] == 1 && of.Protocols["ssh"] == 1 && of.Protocols["silence"] == 1 &&
			of.Protocols["tls"] == 1 && of.Protocols["http1"] == 3 && of.Protocols["http2"] == 1 && of.Protocols["postgres"] == 1 && of.Protocols["redis"] == 1
	})
}

// keys: ssh-keyscan says nothing before the server does, so a route for it is one by silence as well.
func (p *penstock) keys(of *shellServer) {
	p.T.Helper()
	addr, host, port := p.at("shell")
	if keys := software.Run(p.T, software.Need(p.T, "ssh-keyscan", "openssh-client"), "-t", "ed25519", "-p", port, host); !strings.Contains(keys, of.hostKey) {
		p.T.Errorf("ssh-keyscan gets %s, and the server has %s", keys, of.hostKey)
	}
	if got := of.login(p.T, host, port); got != "logged in" {
		p.T.Errorf("a login says %q", got)
	}
	if got := software.Run(p.T, "curl", "-sS", "--noproxy", "*", "http://"+addr+"/"); got != "shop HTTP/1.1 /\n" {
		p.T.Errorf("HTTP beside it gets %q", got)
	}
}

// answering starts an nginx in clear text that answers each request by a name, the protocol and the path.
func answering(t *testing.T, parameter, name string) (addr string) {
	t.Helper()
	addr, _, _ = software.Addr(t)
	startNginx(t, software.Dir(t, nil), addr, fmt.Sprintf(`server { listen %s %s; return 200 "%s $server_protocol $uri\n"; }`, addr, parameter, name))
	return addr
}

// mail returns a server of SMTP, which speaks first.
func mail(t *testing.T) string {
	return sockets.Server(t, func(c net.Conn) {
		fmt.Fprint(c, "220 mail.test ESMTP\r\n")
		for b := make([]byte, 256); ; {
			n, err := c.Read(b)
			switch {
			case err != nil:
				return
			case strings.HasPrefix(string(b[:n]), "QUIT"):
				fmt.Fprint(c, "221 bye\r\n")
				return
			}
			fmt.Fprint(c, "250 mail.test\r\n")
		}
	})
}

// A shellServer is an OpenSSH server, which lets in the user that it runs as.
type shellServer struct{ addr, hostKey, dir, user string }

func newShell(t *testing.T) *shellServer {
	t.Helper()
	sshd, keygen := software.Need(t, "sshd", "openssh-server"), software.Need(t, "ssh-keygen", "openssh-client")
	owner := software.Ordinary(t)
	s := &shellServer{dir: software.Dir(t, owner)}
	u, err := user.Current()
	must(t, err)
	if owner != nil {
		u = owner
	}
	s.user, s.addr = u.Username, ""
	var host, port string
	s.addr, host, port = software.Addr(t)
	for _, key := range []string{"host", "client"} {
		software.RunAs(t, owner, s.dir, keygen, "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(s.dir, key))
	}
	public, err := os.ReadFile(filepath.Join(s.dir, "host.pub"))
	must(t, err)
	s.hostKey = strings.Fields(string(public))[1]
	if _, err := base64.StdEncoding.DecodeString(s.hostKey); err != nil {
		t.Fatal(err)
	}
	software.Service{
		Command: []string{
			sshd, "-D", "-e", "-f", "/dev/null", "-h", filepath.Join(s.dir, "host"), "-o", "ListenAddress=" + net.JoinHostPort(host, port),
			"-o", "PidFile=none", "-o", "UsePAM=no", "-o", "StrictModes=no", "-o", "AuthorizedKeysFile=" + filepath.Join(s.dir, "client.pub"),
		},
		Dir: s.dir, Ready: "Server listening on", Addr: s.addr, Stop: syscall.SIGTERM, User: owner,
	}.Start(t)
	return s
}

func (s *shellServer) login(t testing.TB, host, port string) string {
	t.Helper()
	return strings.TrimSpace(software.Run(t, software.Need(t, "ssh", "openssh-client"), "-F", "/dev/null", "-i", filepath.Join(s.dir, "client"), "-p", port,
		"-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "IdentitiesOnly=yes",
		s.user+"@"+host, "echo logged in"))
}
