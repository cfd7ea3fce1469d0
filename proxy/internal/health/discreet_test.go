package health_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
)

// TestProbesKeepSecrets: no error of a probe contains Send, Expect or the answer, which may
// repeat either.
func TestProbesKeepSecrets(t *testing.T) {
	const send, expect, echoed = "AUTH hunter2\r\n", "hunter3", "hunter4"
	exchange := health.ProbeConfig{Send: []byte(send), Expect: []byte(expect)}
	get := health.ProbeConfig{HTTP: &health.HTTPProbe{Body: []byte(expect)}}
	status := health.ProbeConfig{HTTP: &health.HTTPProbe{Status: []int{204}, Body: []byte(expect)}}
	waits := func(c net.Conn) { answer(echoed)(c); wait(c) }
	for name, test := range map[string]struct {
		handle  func(net.Conn)
		cfg     health.ProbeConfig
		timeout time.Duration
		says    string
	}{
		"another answer": {answer(echoed), exchange, patient, "7 bytes"},
		"and waits":      {waits, exchange, brief, "7 bytes"},
		"too much":       {answer(strings.Repeat(echoed, 10_000)), exchange, patient, "16384 bytes"},
		"another body":   {answer("HTTP/1.1 200 " + echoed + "\r\n\r\n" + echoed), get, patient, "status 200"},
		"another status": {answer("HTTP/1.1 401 " + echoed + "\r\n\r\n" + echoed), status, patient, "status 401"},
		"no HTTP":        {answer(echoed + "\r\n\r\n"), get, patient, "not HTTP"},
		"no version":     {answer(echoed + "/1.1 200 OK\r\n\r\n"), get, patient, "not HTTP"},
		"no status":      {answer("HTTP/1.1 " + echoed + "\r\n\r\n"), get, patient, "not HTTP"},
		"no header":      {answer("HTTP/1.1 200 OK\r\n" + echoed + "\r\n\r\n"), get, patient, "not HTTP"},
		"no length":      {answer("HTTP/1.1 200 OK\r\nContent-Length: " + echoed + "\r\n\r\n"), get, patient, "not HTTP"},
		"no encoding":    {answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: " + echoed + "\r\n\r\n"), get, patient, "not HTTP"},
		"no chunk":       {answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + echoed + "\r\n"), get, patient, "not HTTP"},
		"a bad trailer":  {answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" + echoed + "\r\n\r\n"), get, patient, "1 byte came"},
		"a body cut off": {answer("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + echoed), get, patient, "7 bytes"},
		"an answer inside": {func(c net.Conn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, send+echoed)
		}, exchange, patient, "21 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			test.cfg.Address = serve(t, test.handle)
			err := probe(t, &test.cfg, test.timeout)
			if err == nil {
				t.Fatal("well")
			}
			if strings.Contains(err.Error(), "hunter") {
				t.Errorf("it discloses a secret: %v", err)
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want it to contain %q", err, test.says)
			}
		})
	}
}
