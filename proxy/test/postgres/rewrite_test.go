package postgres

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

// TestRewritten: psql gets the masked answers of the first example of docs/rewrite.md, with TLS and without, and nothing of the protocol
// is changed: a value of any length, directly before the next message, in a COPY and in an error. Where TLS would go
// through, the session is reset.
func TestRewritten(t *testing.T) {
	page, err := os.ReadFile("../../../docs/rewrite.md")
	must(t, err)
	_, example, _ := strings.Cut(string(page), "\n\n    listeners:\n")
	example, _, _ = strings.Cut(example, "\n\n")
	example = "listeners:\n" + strings.Replace(strings.ReplaceAll("\n"+example, "\n    ", "\n"), `":5432"`, `"127.0.0.1:0"`, 1)
	secure, plain := newDatabase(t, "secure", "a.test"), newDatabase(t, "plain", "")
	cert, key := certificate.New(t, "front.test")
	r := loadbalancer.Start(t, example+fmt.Sprintf(`
  - {name: through, bind: "127.0.0.1:0", upstream: secure, rewrite: {direction: down, framing: postgres, mask: [card]}}
  - {name: bytes, bind: "127.0.0.1:0", upstream: secure, rewrite: {direction: down, mask: [card]}}
  - {name: up, bind: "127.0.0.1:0", postgres: terminate, tls: {certificates: [{cert: cert.pem, key: key.pem}]}, upstream: postgres, rewrite: {direction: up, framing: postgres, mask: [card, email]}}
upstreams:
  - {name: postgres, endpoints: [%q], health_check: off}
  - {name: secure, endpoints: [%q], health_check: off}`, plain.addr, secure.addr), "cert.pem", cert, "key.pem", key)
	for _, mode := range []string{"sslmode=disable", "sslmode=require", "sslmode=prefer"} {
		support, up := clientOf(t, r, "support"), clientOf(t, r, "up")
		wantMasked := func(p *psql, query, want string) {
			t.Helper()
			if got := p.ask(mode, query); !strings.HasPrefix(got, want) || !strings.HasPrefix(got, "failed: ") && got != want {
				t.Errorf("%s: the answer to %s is\n%s, want\n%s", mode, query, got, want)
			}
		}
		for _, n := range []int{1, 33, 36, 64} { // with 33 and 36 the last byte of the length is a dash and a digit
			wantMasked(support, "select '"+strings.Repeat("j", n)+"@example.com'", strings.Repeat("*", n)+"@*******.***")
		}
		for query, want := range map[string]string{
			"select '4111 1111 1111 1111'":                  "**** **** **** 1111",
			"select 1, 'ID-123456' union select 2, 'x'":     "1|*********\n2|x",
			"copy (select 'joe@example.com', 7) to stdout":  "***@*******.***\t7",
			"select 'joe@example.com'::int":                 `failed: ERROR:  invalid input syntax for type integer: "***@*******.***"`,
			"select count(*) from generate_series(1, 1000)": "1000",
		} {
			wantMasked(support, query, want)
		}
		wantMasked(up, "select length('joe@example.com'), replace('4111 1111 1111 1111', '*', 'x')", "15|xxxx xxxx xxxx 1111")
	}
	for _, listener := range []string{"through", "bytes"} {
		p := clientOf(t, r, listener)
		wantAnswer(t, p.ask("sslmode=require", "select 1"), listener, "failed: ")
		r.Until("it is counted", func() bool { w := r.Listener(listener).Rewrites; return w.Encrypted == 1 && w.Unframed == 0 })
	}
	if w := r.Listener("support").Rewrites; w.Encrypted+w.Unframed+w.Late != 0 || w.Masked["email"] == 0 {
		t.Errorf("%+v", w)
	}
}
