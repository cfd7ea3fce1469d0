package hostile_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/rollback"
)

// A reloader has no configuration to reload.
type reloader struct{ admin.Reloader }

func (reloader) Generations() rollback.Status { return rollback.Status{} }

// TestAdminGarbage: garbage sent to the admin socket changes nothing and does not hold memory or
// descriptors. Operators are still answered.
func TestAdminGarbage(t *testing.T) {
	r := start(t, fmt.Sprintf(looking, echo(t), "5s"))
	h := serveHonest(t, r.At("hello"), helloOf(t, "a.test"))
	path := filepath.Join(t.TempDir(), "admin")
	a := admin.New(admin.Config{Balancer: r.Server, Reloader: reloader{}, Stop: func() { t.Error("the load balancer was stopped") }})
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := a.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	move, err := a.Prepare(t.Context(), admin.Access{Bind: "unix:" + path})
	must(t, err)
	move.Commit()
	before := r.cost()
	random := make([]byte, 100<<10)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	try := func(sent string) {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		go func() {
			_, _ = io.WriteString(c, sent)
			_ = c.(*net.UnixConn).CloseWrite()
		}()
		answer, _ := io.ReadAll(io.LimitReader(c, 64<<10))
		if bytes.HasPrefix(answer, []byte("HTTP/1.1 2")) {
			t.Errorf("%.60q got the answer %.60q", sent, answer)
		}
	}
	var beside sync.WaitGroup
	for _, sent := range []string{
		"\x16\x03\x01\xff\xff", "GET", "GET / HTTP/9.9\r\n\r\n", string(random),
		"GET /v1/status HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
		"GET /" + strings.Repeat("x", 1<<20) + " HTTP/1.1\r\n\r\n",
		"POST /v1/process/drain HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
		"POST /v1/process/drain HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n",
		"POST /v1/process/drain HTTP/1.1\r\nHost: x\r\n\r\n", // without the header that confirms the request
		"POST /v1/endpoint/weight?weight=-1&weight=%zz HTTP/1.1\r\nHost: x\r\nPenstock-Admin: 1\r\n\r\n",
		"POST /v1/endpoint/weight?upstream=u&endpoint=x&weight=1e9 HTTP/1.1\r\nHost: x\r\nPenstock-Admin: 1\r\n\r\n",
		"POST /v1/split/set?listener=hello&route=-1&percent=x HTTP/1.1\r\nHost: x\r\nPenstock-Admin: 1\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		for range 10 {
			beside.Go(func() { try(sent) })
		}
	}
	beside.Wait()
	var slow []net.Conn
	for range 25 { // of 32 connections that are served at once
		c, err := net.Dial("unix", path)
		must(t, err)
		defer c.Close()
		_, _ = io.WriteString(c, "GET /v1/status HTT")
		slow = append(slow, c)
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	began := time.Now()
	res, err := client.Get("http://localhost/v1/status")
	must(t, err)
	body, err := io.ReadAll(res.Body)
	must(t, err)
	res.Body.Close()
	if res.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(`"header"`)) {
		t.Errorf("%s: %.100q", res.Status, body)
	}
	t.Logf("answered after %v, behind %d unfinished requests", time.Since(began), len(slow))
	for _, c := range slow {
		c.Close()
	}
	h.Stop()
	r.before = before
	r.settled(10)
}
