package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/clienthello"
)

// TestRefusedAreDescribed: the line of a refused client has what was learned of it, and the reason in the word of the status.
func TestRefusedAreDescribed(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
session_log: {to: sessions.log}
listeners:
  - {name: http, bind: "127.0.0.1:0", routes: [{match: {host: [a.example], path: [/a]}, upstream: u}]}
  - {name: doubt, bind: "127.0.0.1:0", routes: [{match: {protocol: [redis]}, upstream: u}, {match: {host: [a.example], path: [/a]}, upstream: u}]}
  - {name: sni, bind: "127.0.0.1:0", routes: [{match: {sni: [a.example]}, upstream: u}]}
  - {name: login, bind: "127.0.0.1:0", routes: [{match: {user: [eve]}, upstream: u}]}
  - {name: postgres, bind: "127.0.0.1:0", postgres: passthrough, routes: [{match: {user: [eve]}, upstream: u}]}
upstreams: [{name: u, endpoints: [%q], health_check: off}]`, named(t, "u")))
	hello := string(clienthello.Named(t, "b.example"))
	for _, c := range []struct{ listener, sends, want string }{
		{"http", "GET /b?secret HTTP/1.1\r\nHost: b.example\r\n\r\n", "no_route http1 b.example /b"},
		{"doubt", "GET /a/../b HTTP/1.1\r\nHost: a.example\r\n\r\n", "first_bytes http1 a.example"},
		{"sni", hello, "no_route tls b.example"},
		{"login", startup, "no_route postgres ann shop"},
		{"postgres", startup, "no_route postgres ann shop"},
	} {
		conn := client(t, r.At(c.listener))
		if _, err := io.WriteString(conn, c.sends); err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(conn)
		conn.Close()
		r.Until("it is counted", func() bool { return r.Refused(c.listener, strings.Fields(c.want)[0]) == 1 })
	}
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(string(r.logged(t, 5))), "\n") {
		var e struct{ Listener, Reason, Protocol, SNI, Host, Path, User, Database string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.Join(strings.Fields(strings.Join([]string{e.Reason, e.Protocol, e.SNI, e.Host, e.Path, e.User, e.Database}, " ")), " "))
	}
	slices.Sort(got) // clients of different loops may be logged in another order
	want := []string{"first_bytes http1 a.example", "no_route http1 b.example /b", "no_route postgres ann shop", "no_route postgres ann shop", "no_route tls b.example"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
