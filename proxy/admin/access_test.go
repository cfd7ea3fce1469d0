package admin_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
)

// readToken is a token that reads.
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	if p.leaf, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), "pem")
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	p.cert, p.key = write("CERTIFICATE", der), write("PRIVATE KEY", private)
	return p
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
		"another token":          {plain, admin.Credentials{Token: changeToken + "0"}, no, "the token is not one of this process"},
		"half a token":           {plain, admin.Credentials{Token: changeToken[1:]}, no, "the token is not one of this process"},
		"a token to read":        {plain, admin.Credentials{Token: readToken}, reads, "this token reads, and changes nothing: write the token of change_token"},
		"no token to change":     {onlyReads, admin.Credentials{Token: readToken}, reads, "this process has none that changes"},
		"a token to change":      {plain, admin.Credentials{Token: changeToken}, changes, "token=change"},
		"no certificate":         {certified, admin.Credentials{CA: ca.cert}, no, "a certificate is needed: write --cert FILE --key FILE"},
		"nothing of either":      {both, admin.Credentials{CA: ca.cert}, no, "a token or a certificate is needed"},
		"another's certificate":  {certified, admin.Credentials{CA: ca.cert, Cert: stranger.cert, Key: stranger.key}, no, "the certificate of the client is not one of client_ca"},
		"a certificate":          {certified, admin.Credentials{CA: ca.cert, Cert: client.cert, Key: client.key}, changes, "certificate=CN=ops"},
		"the own certificate":    {certified, admin.Credentials{Own: own.cert, Cert: own.cert, Key: own.key}, changes, "certificate=own"},
		"a token with TLS":       {both, admin.Credentials{Own: own.cert, Token: readToken}, reads, "this token reads"},
		"a certificate unasked":  {unasked, admin.Credentials{CA: ca.cert, Cert: client.cert, Key: client.key}, no, "no client has a certificate of its own here: a token is needed"},
		"a token beside another": {unasked, admin.Credentials{CA: ca.cert, Cert: stranger.cert, Key: stranger.key, Token: changeToken}, changes, "token=change"},
	} {
		r := newRigWith(t, x.at)
		_, port, err := net.SplitHostPort(r.Addr())
		if err != nil {
			t.Fatal(err)
		}
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
		err = c.SetWeight(t.Context(), "shop", "a", 3)
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
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetWeight(t.Context(), "shop", "a", 3); err == nil || r.balancer.last() != "" {
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
	if err := os.WriteFile(own.key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := admin.NewClientAs(r.Addr(), &admin.Credentials{Own: own.cert, Token: changeToken})
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Status(t.Context())
	if err != nil || !slices.ContainsFunc(s.Problems, func(p admin.Problem) bool {
		return p.Kind == "certificate_refused" && strings.HasPrefix(p.Text, "admin.tls: the certificate in "+own.cert)
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
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Status(t.Context()); err != nil {
		t.Errorf("before: %v", err)
	}
	m.Commit()
	_, err = r.Status(t.Context())
	refused(t, err, http.StatusUnauthorized, "the token is not one of this process")
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
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Authorization", "Bearer "+changeToken)
			if origin != "" {
				q.Header.Set("Origin", origin)
			}
			answer, err := http.DefaultTransport.RoundTrip(q)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != want {
				t.Errorf("%q %s: %s, want %d", origin, target, answer.Status, want)
			}
		}
	}
}

// TestSuccessorOverTCP: a successor with the same conditions takes the address over, whatever they are.
func TestSuccessorOverTCP(t *testing.T) {
	ca := newPair(t, "authority", nil)
	own := newPair(t, "penstock.test", ca)
	for name, a := range map[string]admin.Access{
		"a token to change": {ChangeToken: changeToken},
		"a token to read":   {ReadToken: readToken},
		"certificates":      {Cert: own.cert, Key: own.key, ClientCA: ca.cert},
		"TLS and a token":   {Cert: own.cert, Key: own.key, ReadToken: readToken},
	} {
		a.Bind = "127.0.0.1:0"
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
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, x := range map[string]struct {
		uid    uint32
		groups []uint32
		want   int
		text   string
	}{
		"another":        {12345, nil, http.StatusForbidden, "uid=12345 pid="},
		"another groups": {12345, []uint32{12340, 12347}, http.StatusForbidden, "may not ask here: ask as root or as the user of the process (uid=0), or let a group of this user read"},
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
