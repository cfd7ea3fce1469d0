package failures

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/miekg/dns"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// Ways in which a name server answers the question for one family of addresses.
const (
	answersNothing = "silent" // it never answers
	answersFailure = "servfail"
	answersNoName  = "nxdomain"
	answersNoData  = "nodata"
	answersCut     = "cut" // truncated, and nothing by TCP
)

// TestOneFamilyIsEnough: an endpoint by name serves if one of its families of addresses is found, whatever the answer for
// the other one is, and if one of two name servers answers. Its check finds it as clients do.
func TestOneFamilyIsEnough(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bad   uint16
		how   string
		first string // a name server that is asked first
	}{
		"AAAA silent":         {bad: dns.TypeAAAA, how: answersNothing},
		"A silent":            {bad: dns.TypeA, how: answersNothing},
		"AAAA fails":          {bad: dns.TypeAAAA, how: answersFailure},
		"A fails":             {bad: dns.TypeA, how: answersFailure},
		"AAAA denied":         {bad: dns.TypeAAAA, how: answersNoName},
		"A denied":            {bad: dns.TypeA, how: answersNoData},
		"AAAA cut":            {bad: dns.TypeAAAA, how: answersCut},
		"first server silent": {bad: dns.TypeAAAA, how: answersNoData, first: "127.0.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !privilege.NetworkAndMounts(t) {
				return
			}
			if err := sys.InterfaceUp("lo"); err != nil {
				t.Skip("no network namespace to be used: its loopback:", err)
			}
			nameServers(t, c.first, "127.0.0.1")
			if c.first != "" {
				silent, err := net.ListenPacket("udp", c.first+":53")
				must(t, err)
				t.Cleanup(func() { silent.Close() })
			}
			answers(t, c.bad, c.how)
			testByName(t)
		})
	}
}

// nameServers has the processes of this mount namespace ask these name servers.
func nameServers(t *testing.T, addresses ...string) {
	t.Helper()
	var text string
	for _, a := range addresses {
		if a != "" {
			text += "nameserver " + a + "\n"
		}
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"/etc/resolv.conf": text, "/etc/hosts": "127.0.0.1 localhost\n"} {
		own := filepath.Join(dir, filepath.Base(name))
		must(t, os.WriteFile(own, []byte(text), 0o644))
		if err := syscall.Mount(own, name, "", syscall.MS_BIND, ""); err != nil {
			t.Skipf("no %s of its own: %v", name, err)
		}
	}
}

// answers serves names at 127.0.0.1: their addresses are those of this machine, except for the questions of a bad
// type.
func answers(t *testing.T, bad uint16, how string) {
	t.Helper()
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, m *dns.Msg) {
		reply := new(dns.Msg).SetReply(m)
		q := m.Question[0]
		switch {
		case q.Qtype == dns.TypeA && bad != q.Qtype:
			reply.Answer = append(reply.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET}, A: net.IPv4(127, 0, 0, 1)})
		case q.Qtype == dns.TypeAAAA && bad != q.Qtype:
			reply.Answer = append(reply.Answer, &dns.AAAA{Hdr: dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET}, AAAA: net.IPv6loopback})
		case how == answersNothing:
			return
		case how == answersFailure:
			reply.Rcode = dns.RcodeServerFailure
		case how == answersNoName:
			reply.Rcode = dns.RcodeNameError
		case how == answersCut:
			reply.Truncated = true
		}
		if err := w.WriteMsg(reply); err != nil {
			t.Error(err)
		}
	})
	packets, err := net.ListenPacket("udp", "127.0.0.1:53")
	if err != nil {
		t.Skip("no name server at port 53:", err)
	}
	server, started, ended := &dns.Server{PacketConn: packets, Handler: handler}, make(chan struct{}), make(chan error, 1)
	server.NotifyStartedFunc = func() { close(started) }
	go func() { ended <- server.ActivateAndServe() }()
	<-started
	t.Cleanup(func() {
		if err := server.Shutdown(); err != nil {
			t.Error(err)
		}
		<-ended
	})
}

// testByName has clients served by an endpoint whose address is a name: plain ones, and those whose TLS ends here.
func testByName(t *testing.T) {
	l, err := net.Listen("tcp", "[::]:0")
	must(t, err)
	var checks atomic.Int64 // connections without a byte
	sockets.Serve(t, l, func(c net.Conn) {
		if n, _ := io.Copy(c, c); n == 0 {
			checks.Add(1)
		}
	})
	b := serve(t, fmt.Sprintf(`
listeners:
  - {name: plain, bind: "127.0.0.1:0", upstream: u}
  - {name: tls, bind: "127.0.0.1:0", upstream: u, tls: {certificates: [{cert: c.pem, key: k.pem}]}}
upstreams: [{name: u, endpoints: [{name: e, address: "db.example:%d"}], health_check: {interval: 1s, rise: 1}}]`, l.Addr().(*net.TCPAddr).Port))
	for i := range manners {
		m := &manners[i]
		c, err := net.DialTimeout("tcp", b.At(m.name), condition.Patience)
		must(t, err)
		if err := (&client{Conn: m.wrap(c)}).echo("hello"); err != nil {
			t.Errorf("a client of the listener %s is not served: %v", m.name, err)
		}
		c.Close()
	}
	b.Until("a check that succeeds", func() bool { return b.Endpoint("u", "e").State == admin.Up && checks.Load() > 0 })
}
