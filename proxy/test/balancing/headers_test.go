package balancing

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/admin"
)

// Loopback addresses of clients, and of the HAProxy in front.
const (
	clientHost  = "127.0.7.77"
	deniedHost  = "127.0.7.66"
	inFrontHost = "127.0.7.9"
)

// A chain is a path from a client to the server that reports the client's address:
//
//	curl ── HAProxy, which sends a header ── Penstock, which sends another ── nginx, HAProxy
type chain struct {
	sends, passes int    // versions of the headers
	behind        string // nginx or haproxy
	front         string // address of the first HAProxy
	six           string // the same over IPv6, if available
}

func (c *chain) name() string { return fmt.Sprintf("v%d-v%d-%s", c.sends, c.passes, c.behind) }

// testHeaders: the server that verifies the PROXY header at the end sees the client's true
// address and the one that it connected to, whichever versions are sent. Penstock's rules apply
// to the true address.
func testHeaders(t *testing.T) {
	curl := software.Need(t, "curl", "curl")
	behind := map[string]string{"nginx": nginxBehind(t), "haproxy": haproxyBehind(t)}
	var chains []*chain
	for _, sends := range []int{1, 2} {
		for _, passes := range []int{1, 2} {
			chains = append(chains, &chain{sends: sends, passes: passes, behind: "nginx"}, &chain{sends: sends, passes: passes, behind: "haproxy"})
		}
	}
	configuration := headersConfiguration(chains, behind)
	p := start(t, variant(configuration, 1))
	haproxyInFront(t, p, chains)

	for _, c := range chains {
		t.Run(c.name(), func(t *testing.T) {
			c.test(t, curl)
		})
	}
	p.Until("the denied clients are counted, and no other client is refused", func(s *admin.Status) bool {
		all := int64(0)
		for _, c := range chains {
			n, reasons := refused(s, c.name())
			if all += n; reasons["address"] != n {
				return false
			}
		}
		return all == int64(len(chains))
	})
	for name := range behind {
		for version := range 2 {
			if e := endpointOf(p.State(), fmt.Sprintf("%s-%d", name, version+1), name); e.State != "up" || e.Failures != 0 || e.Total == 0 {
				t.Errorf("the endpoint %s, by version %d: %+v", name, version+1, e)
			}
		}
	}
	directly(t, p, curl, chains)

	const times = 20
	client := []string{"--silent", "--show-error", "--fail", "--noproxy", "*", "--interface", clientHost}
	for _, c := range chains {
		client = append(client, fmt.Sprintf("http://%s/?[1-%d]", c.front, times))
	}
	out := p.readAgain(configuration, append([]string{curl}, client...)...)
	if got := strings.Count(out, clientHost+" "); got != times*len(chains) {
		t.Errorf("%d answers of %d during reloads", got, times*len(chains))
	}
	if s := p.stop(); s.Lost > 200*s.Connections.Accepted { // a request may meet the end of a connection that nginx closes; curl repeats it
		t.Errorf("%d bytes lost", s.Lost)
	}
}

func (c *chain) test(t *testing.T, curl string) {
	ask := func(addr string, flags ...string) {
		t.Helper()
		out := software.Run(t, append([]string{
			curl, "--silent", "--show-error", "--fail", "--noproxy", "*", "--globoff",
			"--write-out", "%{local_ip} %{local_port} %{remote_ip} %{remote_port}\n", "http://" + addr + "/",
		}, flags...)...)
		said, truth, _ := strings.Cut(strings.TrimSuffix(out, "\n"), "\n")
		said, id, _ := strings.Cut(said, " id ")
		if said != truth {
			t.Errorf("the server behind reports %q, the truth is %q", said, truth)
		}
		want := ""
		if c.sends == 2 && c.passes == 2 && c.behind == "haproxy" {
			host, port, _ := strings.Cut(truth, " ")
			port, _, _ = strings.Cut(port, " ")
			want = "unique-" + host + "-" + port
		}
		if id != want {
			t.Errorf("the server behind gets the unique identifier %q, want %q", id, want)
		}
	}
	ask(c.front, "--interface", clientHost)
	if c.six != "" {
		ask(c.six)
	}
	const emptyReply, reset = 52, 56
	if code := fails(t, []string{curl, "--silent", "--noproxy", "*", "--interface", deniedHost, "http://" + c.front + "/"}); code != emptyReply && code != reset {
		t.Errorf("the denied client ends with %d", code)
	}
}

// directly connects clients to Penstock without HAProxy. Clients that may send a header must send
// one; a header of any other client is not accepted.
func directly(t *testing.T, p *penstock, curl string, chains []*chain) {
	t.Helper()
	for _, c := range chains {
		if c.sends != 1 {
			continue
		}
		addr, _, _ := p.at(c.name())
		before, _ := refused(p.State(), c.name())
		command := func(from string, flags ...string) []string {
			return append([]string{
				curl, "--silent", "--show-error", "--fail", "--noproxy", "*", "--interface", from,
				"--write-out", "%{local_ip} %{local_port} %{remote_ip} %{remote_port}\n", "http://" + addr + "/",
			}, flags...)
		}
		for _, client := range [][]string{
			command(clientHost), // served by its own address
			command(inFrontHost, "--haproxy-protocol"),
		} {
			out := software.Run(t, client...)
			if said, truth, _ := strings.Cut(strings.TrimSuffix(out, "\n"), "\n"); said != truth+" id " {
				t.Errorf("%s: the server behind reports %q, the truth is %q", c.name(), said, truth)
			}
		}
		// The header is passed on as the client's own bytes, which are no request.
		const badRequest = 22
		if code := fails(t, command(clientHost, "--haproxy-protocol")); code != badRequest {
			t.Errorf("%s: a header that is not accepted ends curl with %d", c.name(), code)
		}
		fails(t, command(inFrontHost))
		p.Until("a client without the required header is refused", func(s *admin.Status) bool {
			n, reasons := refused(s, c.name())
			return n == before+1 && reasons["proxy_header"] == 1
		})
	}
}

func headersConfiguration(chains []*chain, behind map[string]string) string {
	var text strings.Builder
	text.WriteString("listeners:\n  # EXTRA - {name: extra, bind: \"127.0.0.1:0\", upstream: nginx-1}\n")
	for _, c := range chains {
		fmt.Fprintf(&text, `  - name: %s
    bind: "127.0.0.1:0"
    accept_proxy: {versions: [%d], from: ["%s/32"], timeout: 2s}
    deny: ["%s/32"]
    timeouts: {idle: IDLE}
    upstream: %s-%d
`, c.name(), c.sends, inFrontHost, deniedHost, c.behind, c.passes)
	}
	text.WriteString("upstreams:\n")
	for name, addr := range behind {
		for version := range 2 {
			fmt.Fprintf(&text, "  - {name: %s-%d, endpoints: [{address: %q, name: %[1]s}], send_proxy: %[2]d, health_check: {type: http, interval: 200ms, timeout: 2s}}\n",
				name, version+1, addr)
		}
	}
	return text.String()
}

// nginxBehind reports clients' addresses, by the PROXY header alone.
func nginxBehind(t *testing.T) (addr string) {
	t.Helper()
	addr, _, _ = software.Addr(t)
	startNginx(t, software.Dir(t, nil), addr, fmt.Sprintf(`
	server {
		listen %s proxy_protocol;
		location / { return 200 "$proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_addr $proxy_protocol_server_port id \n"; }
	}`, addr))
	return addr
}

// haproxyBehind is like nginxBehind, with HAProxy, which also verifies checksums.
func haproxyBehind(t *testing.T) (addr string) {
	t.Helper()
	addr, _, _ = software.Addr(t)
	startHAProxy(t, addr, fmt.Sprintf(`
frontend behind
	mode http
	bind %s accept-proxy
	http-request return status 200 content-type text/plain lf-string "%%[src] %%[src_port] %%[dst] %%[dst_port] id %%[fc_pp_unique_id]\n"
`, addr))
	return addr
}

// haproxyInFront sends all connections to Penstock, and checks it with headers of its own.
func haproxyInFront(t *testing.T, p *penstock, chains []*chain) {
	t.Helper()
	six := false
	if l, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		six = l.Close() == nil
	}
	var text strings.Builder
	for _, c := range chains {
		var port string
		c.front, _, port = software.Addr(t)
		fmt.Fprintf(&text, "\nfrontend %s\n\tbind %s\n\tunique-id-format unique-%%ci-%%cp\n\tdefault_backend %[1]s\n", c.name(), c.front)
		if six {
			c.six = net.JoinHostPort("::1", port)
			fmt.Fprintf(&text, "\tbind %s\n", c.six)
		}
		send := "send-proxy"
		if c.sends == 2 {
			send = "send-proxy-v2 proxy-v2-options unique-id,crc32c"
		}
		to, _, _ := p.at(c.name())
		fmt.Fprintf(&text, "backend %s\n\tserver penstock %s %s check inter 500ms source %s\n", c.name(), to, send, inFrontHost)
	}
	startHAProxy(t, chains[0].front, text.String())
}

func startHAProxy(t *testing.T, addr, sections string) {
	t.Helper()
	dir := software.Dir(t, nil)
	path := filepath.Join(dir, "haproxy.cfg")
	must(t, writeFile(path, `global
	maxconn 500
	nbthread 1
defaults
	mode tcp
	retries 0
	timeout connect 10s
	timeout client 30s
	timeout server 30s
`+sections))
	software.Service{
		Command: []string{software.Need(t, "haproxy", "haproxy"), "-db", "-f", path},
		Dir:     dir, Addr: addr, Stop: syscall.SIGINT,
	}.Start(t)
}
