package main

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/relay"
)

// TestSessionsAreCounted forwards an echo, and looks at the metrics and the log.
func TestSessionsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	ended, logged := make(chan struct{}), new(bytes.Buffer)
	hooks := newMetrics(registry).hooks(slog.New(slog.NewTextHandler(logged, nil)))
	count := hooks.Ended
	hooks.Ended = func(s *relay.Session, res relay.Result, err error) {
		count(s, res, err)
		close(ended)
	}
	r := must.Get(relay.New(&relay.Config{Hooks: hooks}))(t)
	defer r.Close()
	l := listen(t)
	forwarded := make(chan error, 1)
	go func() { forwarded <- forward(t.Context(), r, l, echo(t)) }()

	c := must.Get(net.Dial("tcp", l.Addr().String()))(t)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	must.Get(io.WriteString(c, "hello"))(t)
	must.Get(io.ReadFull(c, make([]byte, 5)))(t)
	expect(t, registry, "relay_sessions 1")
	_ = c.(*net.TCPConn).CloseWrite()
	must.Get(io.Copy(io.Discard, c))(t)
	<-ended
	expect(
		t, registry, "relay_sessions 0", `relay_sessions_ended_total{reason="eof"} 1`,
		`relay_bytes_total{direction="from_client",engine="copy"} 5`,
		`relay_bytes_total{direction="to_client",engine="copy"} 5`,
		"relay_session_seconds_count 1",
	)
	if text := logged.String(); !strings.Contains(text, "session ended") || !strings.Contains(text, "from_client=5 to_client=5") {
		t.Errorf("the log has %q", text)
	}
	l.Close()
	<-forwarded
}

// expect fails if a line is missing in the metrics.
func expect(t *testing.T, from prometheus.Gatherer, lines ...string) {
	t.Helper()
	w := httptest.NewRecorder()
	handler(from).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range lines {
		if !strings.Contains(w.Body.String(), line+"\n") {
			t.Errorf("no %q in\n%s", line, w.Body)
		}
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	return l
}

// echo returns the address of a server that sends back its bytes.
func echo(t *testing.T) string {
	t.Helper()
	l := listen(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}
