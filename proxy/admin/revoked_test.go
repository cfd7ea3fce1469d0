package admin_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
)

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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(20 * time.Second); r.Guests() == 0; time.Sleep(time.Millisecond) { // else it comes after the reload
		if time.Now().After(until) {
			t.Fatal("the server has no connection")
		}
	}
	if x.tls != nil {
		conn = tls.Client(conn, x.tls)
	}
	return conn, func() {
		t.Helper()
		if x.after.ChangeToken+x.after.ReadToken+x.after.ClientCA != "" {
			x.after.Bind = x.before.Bind
		}
		m, err := r.Prepare(t.Context(), x.after)
		if err != nil {
			t.Fatal(err)
		}
		m.Commit()
	}
}

// request is the head of a request, but for its end.
func (x *revocation) request(target string) string {
	text := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n", target)
	if x.token != "" {
		text += "Authorization: Bearer " + x.token + "\r\n"
	}
	return text
}

// TestRevokedBeforeTheRequest: a connection from before a reload is judged by the conditions after it.
func TestRevokedBeforeTheRequest(t *testing.T) {
	for name, x := range revocations(t) {
		conn, revoke := x.dial(t)
		text := x.request("/v1/status")
		if _, err := io.WriteString(conn, text[:10]); err != nil {
			t.Fatal(err)
		}
		revoke()
		if _, err := io.WriteString(conn, text[10:]+"\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %+v, %v", name, answer, err)
		}
	}
}

// TestRevokedStreamsEnd: a stream of events ends with the first one that its client may not read any more.
func TestRevokedStreamsEnd(t *testing.T) {
	for name, x := range revocations(t) {
		conn, revoke := x.dial(t)
		if _, err := io.WriteString(conn, x.request("/v1/events")+"\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %+v, %v", name, answer, err)
		}
		revoke()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Errorf("%s: it goes on: %v", name, err)
		}
	}
}
