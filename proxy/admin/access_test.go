package admin_test

import (
	"bufio"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/proxy/admin"
)

const readToken = "fedcba9876543210"

// A pair is the files of a certificate and its key.
type pair struct {
	cert, key string
	leaf      *x509.Certificate
	private   *ecdsa.PrivateKey
}

// newPair writes a certificate for a name, which issuer has signed; nil: it is an authority.
func newPair(t *testing.T, name string, issuer *pair) *pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: issuer == nil,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	p := &pair{private: key}
	if issuer == nil {
		issuer = &pair{leaf: template, private: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.leaf, &key.PublicKey, issuer.private)
	must(t, err)
	p.leaf, err = x509.ParseCertificate(der)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	write := func(kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), "pem")
		must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	p.cert, p.key = write("CERTIFICATE", der), write("PRIVATE KEY", private)
	return p
}

func weighed(t *testing.T, c *admin.Client) error {
	_, err := c.ChangeEndpoint(t.Context(), &admin.EndpointChange{What: admin.EndpointWeight, Upstream: "shop", Endpoint: "a", Weight: 3})
	return err
}

// TestRolesOfTCP: a token, or a certificate of client_ca or of the process itself, decides which requests
// a client may make. Those that it may not change nothing.
func TestRolesOfTCP(t *testing.T) {
	ca, other := newPair(t, "authority", nil), newPair(t, "another authority", nil)
	own, client, stranger := newPair(t, "penstock.test", ca), newPair(t, "ops", ca), newPair(t, "mallory", other)
	plain := admin.Access{Bind: "127.0.0.1:0", ReadToken: readToken, ChangeToken: changeToken}
	onlyReads := admin.Access{Bind: "127.0.0.1:0", ReadToken: readToken}
	certified := admin.Access{Bind: "127.0.0.1:0", Cert: own.cert, Key: own.key, ClientCA: ca.cert}
	both := certified
	both.ReadToken, both.ChangeToken = readToken, changeToken
	unasked := both
	unasked.ClientCA = ""
	const no, reads, changes = 0, 1, 2
	for name, x := range map[string]struct {
		at   admin.Access
		as   admin.Credentials
		may  int
		want string // of the author or the refusal
	}{
		"no token":               {plain, admin.Credentials{}, no, "a token is needed: write --token-file FILE"},
		"another token":          {plain, admin.Credentials{Token: changeToken + "0"}, no, "the process does not know this token"},
		"half a token":           {plain, admin.Credentials{Token: changeToken[1:]}, no, "the process does not know this token"},
		"a token to read":        {plain, admin.Credentials{Token: readToken}, reads, "this token may read, but not change: write the token of change_token"},
		"no token to change":     {onlyReads, admin.Credentials{Token: readToken}, reads, "this process has no token that may change"},
		"a token to change":      {plain, admin.Credentials{Token: changeToken}, changes, "token=change"},
		"no certificate":         {certified, admin.Credentials{CA: ca.cert}, no, "a certificate is needed: write --cert FILE --key FILE"},
		"nothing of either":      {both, admin.Credentials{CA: ca.cert}, no, "a token or a certificate is needed"},
		"another's certificate":  {certified, admin.Credentials{CA: ca.cert, Cert: stranger.cert, Key: stranger.key}, no, "client_ca did not issue the certificate of the client"},
		"a certificate":          {certified, admin.Credentials{CA: ca.cert, Cert: client.cert, Key: client.key}, changes, "certificate=CN=ops"},
		"the own certificate":    {certified, admin.Credentials{Own: own.cert, Cert: own.cert, Key: own.key}, changes, "certificate=own"},
		"a token with TLS":       {both, admin.Credentials{Own: own.cert, Token: readToken}, reads, "this token may read, but not change"},
		"a certificate unasked":  {unasked, admin.Credentials{CA: ca.cert, Cert: client.cert, Key: client.key}, no, "this process has no client_ca, so a client certificate has no effect: a token is needed"},
		"a token beside another": {unasked, admin.Credentials{CA: ca.cert, Cert: stranger.cert, Key: stranger.key, Token: changeToken}, changes, "token=change"},
	} {
		r := newRigWith(t, x.at)
		_, port, err := net.SplitHostPort(r.Addr())
		must(t, err)
		host := "127.0.0.1"
		if x.as.CA != "" {
			host = "penstock.test"
		}
		c, err := admin.NewClientAs(host+":"+port, &x.as)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c.Reach(r.Addr())
		_, err = c.Status(t.Context())
		if x.may == no {
			refused(t, err, http.StatusUnauthorized, x.want)
		} else if err != nil {
			t.Errorf("%s: a read: %v", name, err)
		}
		err = weighed(t, c)
		switch {
		case x.may == changes && (err != nil || !strings.HasSuffix(r.balancer.last(), "by "+x.want)):
			t.Errorf("%s: %v, %q", name, err, r.balancer.last())
		case x.may == reads:
			refused(t, err, http.StatusForbidden, x.want)
		case x.may == no:
			refused(t, err, http.StatusUnauthorized, x.want)
		}
		if x.may != changes && r.balancer.last() != "" {
			t.Errorf("%s: %s", name, r.balancer.last())
		}
	}
}

// TestServerIsVerified: a client does not send a token to a server with another certificate, nor as clear
// text to another machine.
func TestServerIsVerified(t *testing.T) {
	ca, other := newPair(t, "authority", nil), newPair(t, "another authority", nil)
	own := newPair(t, "penstock.test", ca)
	r := newRigWith(t, admin.Access{Bind: "127.0.0.1:0", Cert: own.cert, Key: own.key, ChangeToken: changeToken})
	for name, as := range map[string]admin.Credentials{
		"authority":   {CA: other.cert, Token: changeToken},
		"name":        {CA: ca.cert, Token: changeToken}, // 127.0.0.1
		"certificate": {Own: ca.cert, Token: changeToken},
	} {
		c, err := admin.NewClientAs(r.Addr(), &as)
		must(t, err)
		if err := weighed(t, c); err == nil || r.balancer.last() != "" {
			t.Errorf("%s: %v, %q", name, err, r.balancer.last())
		}
	}
	for _, as := range []admin.Credentials{{}, {Token: changeToken}} {
		if _, err := admin.NewClientAs("192.0.2.1:9", &as); !errors.Is(err, admin.ErrCredentials) {
			t.Errorf("%v", err)
		}
	}
}

// TestCertificateOfTheAddress: a certificate file that can no longer be used is a problem, as a listener's is.
func TestCertificateOfTheAddress(t *testing.T) {
	own := newPair(t, "penstock.test", nil)
	r := newRigWith(t, admin.Access{Bind: "127.0.0.1:0", Cert: own.cert, Key: own.key, ChangeToken: changeToken})
	must(t, os.WriteFile(own.key, []byte("no key"), 0o600))
	c, err := admin.NewClientAs(r.Addr(), &admin.Credentials{Own: own.cert, Token: changeToken})
	must(t, err)
	s, err := c.Status(t.Context())
	if err != nil || !slices.ContainsFunc(s.Problems, func(p admin.Problem) bool {
		return p.Kind == "certificate_refused" && strings.HasPrefix(p.Text, "admin.tls: the new certificate in "+own.cert)
	}) {
		t.Errorf("%v: %+v", err, s.Problems)
	}
}

// TestAccessThatIsTooWide: an address of TCP has a token or client_ca, and beyond this machine TLS.
func TestAccessThatIsTooWide(t *testing.T) {
	own := newPair(t, "penstock.test", nil)
	for _, a := range []admin.Access{
		{Bind: "127.0.0.1:0"},
		{Bind: ":0", ChangeToken: changeToken},
		{Bind: "192.0.2.1:0", ReadToken: readToken},
		{Bind: "127.0.0.1:0", Cert: own.cert, Key: own.key},
	} {
		if _, err := newQuietRig(t).Prepare(t.Context(), a); !errors.Is(err, admin.ErrAccess) {
			t.Errorf("%+v: %v", a, err)
		}
	}
	if _, err := newQuietRig(t).Prepare(t.Context(), admin.Access{Bind: "unix:" + filepath.Join(t.TempDir(), "s"), Group: "no such group"}); err == nil || !strings.Contains(err.Error(), `there is no group "no such group"`) {
		t.Errorf("a group that there is not: %v", err)
	}
}

// TestTokensChange: a reload that leaves the address alone brings new tokens into force.
func TestTokensChange(t *testing.T) {
	r := newRig(t, "127.0.0.1:0")
	m, err := r.Prepare(t.Context(), admin.Access{Bind: r.bind, ReadToken: readToken})
	must(t, err)
	if _, err := r.Status(t.Context()); err != nil {
		t.Errorf("before: %v", err)
	}
	m.Commit()
	_, err = r.Status(t.Context())
	refused(t, err, http.StatusUnauthorized, "If the file has a new one, send SIGHUP, or give the old one with --token-file")
}

// TestOrigins: over TCP a request of a page of another host is refused, whatever token it has.
func TestOrigins(t *testing.T) {
	r := newRig(t, "127.0.0.1:0")
	for origin, want := range map[string]int{
		"": http.StatusOK, "http://" + r.Addr(): http.StatusOK, "http://localhost": http.StatusForbidden, "http://evil.example": http.StatusForbidden,
		"null": http.StatusForbidden, "http://127.0.0.1:1": http.StatusForbidden, "http://[": http.StatusForbidden, "http://" + r.Addr() + "@evil.example": http.StatusForbidden,
	} {
		for _, target := range []string{"/livez", "/v1/status"} {
			q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.Addr()+target, nil)
			must(t, err)
			q.Header.Set("Authorization", "Bearer "+changeToken)
			if origin != "" {
				q.Header.Set("Origin", origin)
			}
			answer, err := http.DefaultTransport.RoundTrip(q)
			must(t, err)
			answer.Body.Close()
			if answer.StatusCode != want {
				t.Errorf("%q %s: %s, want %d", origin, target, answer.Status, want)
			}
		}
	}
}

// TestPipes: a file of admin.tls that is a pipe without a writer is refused, and nobody waits; nor does a client whose files come
// from the configuration.
func TestPipes(t *testing.T) {
	own := newPair(t, "penstock.test", nil)
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	const to = "127.0.0.1:9" // nothing is sent
	for name, open := range map[string]func() error{
		"cert": func() error {
			_, err := newQuietRig(t).Prepare(t.Context(), admin.Access{Bind: "127.0.0.1:0", Cert: pipe, Key: own.key, ReadToken: readToken})
			return err
		},
		"client_ca": func() error {
			_, err := newQuietRig(t).Prepare(t.Context(), admin.Access{Bind: "127.0.0.1:0", Cert: own.cert, Key: own.key, ClientCA: pipe})
			return err
		},
		"own cert": func() error {
			_, err := admin.NewClientAs(to, &admin.Credentials{Own: pipe, Token: readToken})
			return err
		},
		"own key": func() error {
			_, err := admin.NewClientAs(to, &admin.Credentials{Own: own.cert, Cert: own.cert, Key: pipe})
			return err
		},
	} {
		done := make(chan error, 1)
		go func() { done <- open() }()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), "not a regular file") {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(condition.Patience):
			t.Fatal("it waits for the writer of ", name)
		}
	}
}

// TestHandover: a process keeps its address until a successor with the same conditions needs it and the process is draining.
// Until then the process answers, and then its successor does.
func TestHandover(t *testing.T) {
	ca := newPair(t, "authority", nil)
	own := newPair(t, "penstock.test", ca)
	for name, a := range map[string]admin.Access{
		"a unix socket":     {Bind: "unix:" + filepath.Join(t.TempDir(), "s")},
		"a token to change": {ChangeToken: changeToken},
		"a token to read":   {ReadToken: readToken},
		"certificates":      {Cert: own.cert, Key: own.key, ClientCA: ca.cert},
		"TLS and a token":   {Cert: own.cert, Key: own.key, ReadToken: readToken},
	} {
		a.Bind = cmp.Or(a.Bind, "127.0.0.1:0")
		old, next := newRigWith(t, a), newQuietRig(t)
		a.Bind = old.Addr()
		if _, err := next.Prepare(t.Context(), a); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s: while the first one serves: %v", name, err)
		}
		old.balancer.drain(true)
		m, err := next.Prepare(t.Context(), a)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		m.Commit()
		if old.Addr() != "" || next.Addr() != a.Bind {
			t.Errorf("%s: the successor is at %q, the other at %q", name, next.Addr(), old.Addr())
		}
		if s, err := old.Status(t.Context()); name == "a unix socket" && (err != nil || s.State != admin.Serving) { // of the successor
			t.Errorf("%s: %v, %v", name, s.State, err)
		}
		if old.move(t, "127.0.0.1:0"); old.Addr() != "" {
			t.Errorf("%s: the server that has left is at %q", name, old.Addr())
		}
	}
}

// TestLeaveForAReader: the read token makes a process leave its address only while the process drains, and takes no other
// credentials that a successor could show. The document says so.
func TestLeaveForAReader(t *testing.T) {
	for _, x := range []struct {
		change string
		drains bool
		want   int
	}{{changeToken, true, http.StatusForbidden}, {"", false, http.StatusConflict}, {"", true, http.StatusOK}} {
		r := newRigWith(t, admin.Access{Bind: "127.0.0.1:0", ReadToken: readToken, ChangeToken: x.change})
		r.balancer.drain(x.drains)
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.Addr()+"/v1/leave", nil)
		must(t, err)
		q.Header = http.Header{"Authorization": {"Bearer " + readToken}, "Penstock-Admin": {"1"}}
		answer, err := http.DefaultClient.Do(q)
		must(t, err)
		answer.Body.Close()
		if answer.StatusCode != x.want {
			t.Errorf("%+v: %d", x, answer.StatusCode)
		}
	}
	page, err := os.ReadFile("../../docs/openapi.json")
	must(t, err)
	if !strings.Contains(string(page), "Role: changes, or reads with the read_token of a process without change_token and client_ca.") {
		t.Error("docs/openapi.json does not say who may ask for /v1/leave")
	}
}

// TestRolesOfUsers: over a unix socket the user and the groups of a process decide, whatever the mode of the
// path is.
func TestRolesOfUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may have another user ask")
	}
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		must(t, os.Chmod(d, 0o755))
	}
	for name, x := range map[string]struct {
		uid    uint32
		groups []uint32
		want   int
		text   string
	}{
		"another":        {12345, nil, http.StatusForbidden, "uid=12345 pid="},
		"another groups": {12345, []uint32{12340, 12347}, http.StatusForbidden, "may not use the admin API: connect as root or as the user of the process (uid=0), or let a group of this user read"},
		"the group":      {12346, nil, http.StatusOK, ""}, // its first group has the number of the user
		"one of many":    {12345, append(make([]uint32, 100), 12346), http.StatusOK, ""},
		"root":           {0, nil, http.StatusOK, ""},
	} {
		r := newRigWith(t, admin.Access{Bind: "unix:" + filepath.Join(dir, strings.ReplaceAll(name, " ", "")), Group: "12346"})
		if code, body := postedAs(t, x.uid, x.groups, r.Addr(), "/v1/plan"); code != x.want || !strings.Contains(body, x.text) {
			t.Errorf("%s: %d %s", name, code, body)
		}
		want := http.StatusForbidden
		if x.uid == 0 {
			want = http.StatusOK
		}
		code, body := postedAs(t, x.uid, x.groups, r.Addr(), "/v1/endpoint/weight?upstream=shop&endpoint=a&weight=3")
		if code != want || (r.balancer.last() != "") != (x.uid == 0) {
			t.Errorf("%s: %d %s, and %q", name, code, body, r.balancer.last())
		}
		if x.uid == 0 && !strings.Contains(r.balancer.last(), "by uid=0 pid=") {
			t.Errorf("%s: %q", name, r.balancer.last())
		}
	}
}

// TestUnknownUsers: without credentials of the kernel nobody is anybody; an ID that stands for many groups is
// no group.
func TestUnknownUsers(t *testing.T) {
	for name, x := range map[string]struct {
		known       bool
		gid, group  uint32
		whole, want bool
	}{
		"a group":          {true, 5, 5, true, true},
		"another":          {true, 5, 6, true, false},
		"unknown":          {false, 5, 5, true, false},
		"overflow":         {true, 65534, 65534, false, false},
		"nogroup":          {true, 65534, 65534, true, true},
		"within namespace": {true, 5, 5, false, true},
	} {
		if got := admin.InGroup(x.known, x.gid, x.group, x.whole); got != x.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// asksAs is the environment variable of a child that makes a request as another user: the
// address and the request.
const asksAs = "PENSTOCK_TEST_ASKS"

// postedAs makes a request from a child of another user, which root may start.
func postedAs(t *testing.T, uid uint32, groups []uint32, addr, target string) (code int, body string) {
	t.Helper()
	cmd := exec.Command(privilege.Self, "-test.run=^TestFilesOfOthers$", "-test.v")
	cmd.Env = append(os.Environ(), asksAs+"="+addr+" "+target)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: groups}, Pdeathsig: syscall.SIGKILL}
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	_, answer, ok := strings.Cut(string(out), "answer ")
	if _, scan := fmt.Sscanf(answer, "%d %q", &code, &body); err != nil || !ok || scan != nil {
		t.Fatalf("%v, %v: %s", err, scan, out)
	}
	return code, body
}

func dialed(t *testing.T, addr string) net.Conn {
	t.Helper()
	network := "tcp"
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	c, err := net.Dial(network, addr)
	must(t, err)
	return c
}

func posted(t *testing.T, c net.Conn, target string) (code int, body string) {
	t.Helper()
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(condition.Patience))
	token := "Authorization: Bearer " + changeToken + "\r\n"
	if _, err := io.WriteString(c, "POST "+target+" HTTP/1.1\r\nHost: localhost\r\n"+admin.Header+": 1\r\n"+token+"\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(t, err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	must(t, err)
	return answer.StatusCode, string(b)
}

// TestFilesOfOthers: the process reads files other than its own only for root and its own
// user, over its unix socket. To other clients it does not show the content of its own file.
func TestFilesOfOthers(t *testing.T) {
	if addr, target, ok := strings.Cut(os.Getenv(asksAs), " "); ok {
		code, body := posted(t, dialed(t, addr), target)
		fmt.Printf("answer %d %q\n", code, body)
		return
	}
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		must(t, os.Chmod(d, 0o755))
	}
	for _, x := range []struct {
		who, bind       string
		trusted, change bool
	}{
		{"self", "unix:" + dir + "/self", true, true},
		{"another", "unix:" + dir + "/another", false, false}, // of the group
		{"tcp", "127.0.0.1:0", false, true},
	} {
		t.Run(x.who, func(t *testing.T) {
			if x.who == "another" && os.Geteuid() != 0 {
				t.Skip("only root may have another user ask")
			}
			at := access(x.bind)
			if x.who == "another" {
				at.Group = "12346"
			}
			r := newRigWith(t, at)
			ask := func(target string) (int, string) {
				if x.who == "another" {
					return postedAs(t, 12345, []uint32{12346}, r.Addr(), target)
				}
				return posted(t, dialed(t, r.Addr()), target)
			}
			want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[x.trusted]
			if code, body := ask("/v1/plan?config=/etc/shadow"); code != want {
				t.Errorf("another file: %d %s, want %d", code, body, want)
			}
			if code, body := ask("/v1/plan"); code != http.StatusOK {
				t.Errorf("the file in force: %d %s", code, body)
			}
			if code, body := ask("/v1/endpoint/add?upstream=shop&address=unix:/run/docker.sock"); code == http.StatusForbidden == x.trusted {
				t.Errorf("a unix socket as an endpoint: %d %s", code, body)
			}
			r.reloader.mu.Lock()
			r.reloader.bad = &admin.ConfigError{Path: "/p.yaml", Problems: []string{`"hunter2" is no duration`}, Text: "1 | hunter2\n    ^\n"}
			r.reloader.mu.Unlock()
			for _, target := range []string{"/v1/plan", "/v1/reload"} {
				code, body := ask(target)
				if target == "/v1/reload" && !x.change {
					if code != http.StatusForbidden || !strings.Contains(body, "may read, but not change") {
						t.Errorf("%s: %d %s", target, code, body)
					}
					continue
				}
				if code != http.StatusUnprocessableEntity || strings.Contains(body, "hunter2") != x.trusted || !strings.Contains(body, "/p.yaml") && !x.trusted {
					t.Errorf("%s: %d %s", target, code, body)
				}
			}
		})
	}
}

// TestMayRead: root and the process's own user may, but not an ID that stands for any user.
func TestMayRead(t *testing.T) {
	for _, x := range []struct {
		uid     uint32
		known   bool
		process int
		whole   bool // all users have IDs of their own here
		want    bool
	}{
		{0, true, 1000, true, true},
		{1000, true, 1000, true, true},
		{1001, true, 1000, true, false},
		{1000, true, 0, true, false},
		{0, false, 0, true, false},
		{1000, false, 1000, true, false},
		{65534, true, 65534, false, false},
		{65534, true, 65534, true, true},
		{65534, true, 0, false, false},
	} {
		if got := admin.MayRead(x.uid, x.known, x.process, x.whole); got != x.want {
			t.Errorf("%+v: %v", x, got)
		}
	}
}

// TestOwnConnectionsAreRefused: an endpoint that leads to the admin socket leads nowhere, however
// its path is written; others are answered.
func TestOwnConnectionsAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for _, self := range []int{os.Getpid(), os.Getpid() + 1} {
		r := newRigWith(t, access("unix:"+path), func(c *admin.Config) { c.Self = self })
		c := dialed(t, "unix:"+path)
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		_, _ = io.WriteString(c, "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
		answer, _ := io.ReadAll(c)
		c.Close()
		if refused := len(answer) == 0; refused != (self == os.Getpid()) {
			t.Errorf("refused is %v: %q", refused, answer)
		}
		r.end(t)
	}
}

// listens is the variable that has a child call listen on its descriptor 3.
const listens = "PENSTOCK_TEST_LISTENS"

// TestFoundSockets: the server at a socket that was found, and not named, is one of root or of this user.
func TestFoundSockets(t *testing.T) {
	if os.Getenv(listens) != "" { // the child of listensAs
		must(t, syscall.Listen(3, 8))
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may listen as another user")
	}
	r := newRig(t, "")
	path := listensAs(t, 12345)
	for name, x := range map[string]struct {
		at      string
		as      admin.Credentials
		refused bool
	}{
		"root":      {r.Addr(), admin.Credentials{Known: true}, false},
		"another":   {"unix:" + path, admin.Credentials{Known: true}, true},
		"the owner": {"unix:" + path, admin.Credentials{Known: true, Owner: 12345}, false},
		"named":     {"unix:" + path, admin.Credentials{}, false},
	} {
		c, err := admin.NewClientAs(x.at, &x.as)
		must(t, err)
		if _, err = c.Status(t.Context()); (err != nil) != x.refused {
			t.Errorf("%s: %v", name, err)
		}
		if x.refused && (!errors.Is(err, admin.ErrStranger) || !strings.Contains(err.Error(), "uid=12345")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// listensAs returns the path of a socket at which another user answers with a status: the kernel keeps the user that
// has called listen.
func listensAs(t *testing.T, uid int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(t, err)
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	must(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}))
	child := exec.Command(privilege.Self, "-test.run=^TestFoundSockets$")
	child.Env, child.ExtraFiles, child.Dir = append(os.Environ(), listens+"=1"), []*os.File{file}, "/"
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}, Pdeathsig: syscall.SIGKILL}
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l, err := net.FileListener(file)
	must(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(admin.Header, "1")
		fmt.Fprint(w, `{"state": "serving", "pid": 1}`)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // http.ErrServerClosed
	}()
	t.Cleanup(func() {
		s.Close()
		<-done
	})
	return path
}

// revocation is a client that may read or change, and the conditions that take that away.
type revocation struct {
	before, after admin.Access
	token         string
	tls           *tls.Config
}

// revocations are by token, by authority, by TLS, and by an address that is given up.
func revocations(t *testing.T) map[string]revocation {
	t.Helper()
	ca, other := newPair(t, "authority", nil), newPair(t, "another authority", nil)
	own, client := newPair(t, "penstock.test", ca), newPair(t, "ops", ca)
	shown, err := tls.LoadX509KeyPair(client.cert, client.key)
	must(t, err)
	plain := admin.Access{Bind: "127.0.0.1:0", ChangeToken: changeToken}
	certified := admin.Access{Bind: "127.0.0.1:0", Cert: own.cert, Key: own.key, ClientCA: ca.cert}
	others, secured := certified, certified
	others.ClientCA = other.cert
	secured.ChangeToken = changeToken
	as := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{shown}}
	return map[string]revocation{
		"another token":       {plain, admin.Access{ReadToken: readToken}, changeToken, nil},
		"no address":          {plain, admin.Access{}, changeToken, nil},
		"TLS":                 {plain, secured, changeToken, nil},
		"another authority":   {certified, others, "", as},
		"no TLS":              {certified, plain, "", as},
		"no address with TLS": {certified, admin.Access{}, "", as},
	}
}

// dial connects, and revoke brings the other conditions into force.
func (x *revocation) dial(t *testing.T) (conn net.Conn, revoke func()) {
	t.Helper()
	r := newRigWith(t, x.before)
	conn, err := net.Dial("tcp", r.Addr())
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(condition.Patience)))
	condition.Await(t, "the server has the connection", func() bool { return r.Guests() > 0 }) // else it comes after the reload
	if x.tls != nil {
		conn = tls.Client(conn, x.tls)
	}
	return conn, func() {
		t.Helper()
		if x.after.ChangeToken+x.after.ReadToken+x.after.ClientCA != "" {
			x.after.Bind = x.before.Bind
		}
		m, err := r.Prepare(t.Context(), x.after)
		must(t, err)
		m.Commit()
	}
}

// request is the head of a request, except for its end.
func (x *revocation) request(target string) string {
	text := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n", target)
	if x.token != "" {
		text += "Authorization: Bearer " + x.token + "\r\n"
	}
	return text
}

// TestRevoked: a connection from before a reload is judged by the conditions after it, and a stream of events ends with the
// first one that its client may not read any more.
func TestRevoked(t *testing.T) {
	for name, x := range revocations(t) {
		conn, revoke := x.dial(t)
		text := x.request("/v1/status") + "\r\n"
		send := func(text string) {
			t.Helper()
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		send(text[:10])
		revoke()
		send(text[10:])
		if answer, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %+v, %v", name, answer, err)
		}
		conn, revoke = x.dial(t)
		send(x.request("/v1/events") + "\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %+v, %v", name, answer, err)
		}
		revoke()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Errorf("%s: the stream goes on: %v", name, err)
		}
	}
}
