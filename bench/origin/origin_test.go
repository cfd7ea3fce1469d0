package origin_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/penstock/penstock/bench/origin"
	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

func TestMain(m *testing.M) { leak.Main(m) }

// serving runs an origin until the test ends, and returns its address.
func serving(t *testing.T) string {
	t.Helper()
	return sockets.Run(t, func(ctx context.Context, l *net.TCPListener) error { return origin.Serve(ctx, l) })
}

// dial connects to a new origin.
func dial(t *testing.T) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", serving(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

func TestBulkStreamsUntilTheClientHalfCloses(t *testing.T) {
	c := dial(t)
	// The request comes in two pieces, as a network may deliver it.
	for _, piece := range []string{"bul", "k 9\n"} {
		if _, err := io.WriteString(c, piece); err != nil {
			t.Fatal(err)
		}
	}
	content, buf := traffic.NewStream(9), make([]byte, 1<<20)
	if _, err := io.ReadFull(c, buf); err != nil || !content.Check(buf) {
		t.Fatalf("the first MiB is wrong: %v", err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(c)
	if err != nil || len(rest) < traffic.TrailerSize {
		t.Fatalf("%d bytes after the half-close, %v", len(rest), err)
	}
	last := len(rest) - traffic.TrailerSize
	if !content.Check(rest[:last]) {
		t.Error("the rest is wrong")
	}
	if got, want := traffic.ParseTrailer(rest[last:]), int64(len(buf)+last); got != want {
		t.Errorf("the trailer has %d, received %d", got, want)
	}
}

func TestBulkWithoutASeedIsClosed(t *testing.T) {
	for _, request := range []string{"bulk \n", "bulk 99999999999999999999"} {
		c := dial(t)
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
			t.Errorf("%q: got %q, %v", request, rest, err)
		}
	}
}

func TestEverythingElseComesBack(t *testing.T) {
	for _, message := range []string{"x", "hello\n", "bulk", "GET", "bulky goods\n", string(make([]byte, 100_000))} {
		c := dial(t)
		if _, err := io.WriteString(c, message); err != nil {
			t.Fatal(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if back, err := io.ReadAll(c); err != nil || string(back) != message {
			t.Errorf("%.20q: got %.20q, %v", message, back, err)
		}
	}
}

func TestHTTP(t *testing.T) {
	address := serving(t)
	transport := &http.Transport{DisableKeepAlives: true}
	client := &http.Client{Transport: transport}
	for _, test := range []struct {
		path   string
		status int
		length int
	}{
		{"/", 200, -1},
		{"/1000", 200, 1000},
		{"/300k", 404, 0},
		{"/300K", 200, 300_000},
		{"/2M", 200, 2_000_000},
		{"/-1", 404, -1},
		{"/99999999999G", 404, -1},
		{"/K", 404, -1},
	} {
		resp, err := client.Get("http://" + address + test.path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != test.status || int64(len(body)) != resp.ContentLength {
			t.Errorf("%s: status %d, %d bytes of %d, %v", test.path, resp.StatusCode, len(body), resp.ContentLength, err)
			continue
		}
		if test.status == 200 && test.length >= 0 && (len(body) != test.length || !traffic.NewStream(0).Check(body)) {
			t.Errorf("%s: %d bytes, or wrong ones", test.path, len(body))
		}
	}
	resp, err := client.Head("http://" + address + "/1G")
	if err != nil || resp.ContentLength != 1e9 {
		t.Errorf("HEAD: %+v, %v", resp, err)
	}
	_ = resp.Body.Close()
}

func TestHTTPThatIsNone(t *testing.T) {
	c := dial(t)
	if _, err := io.WriteString(c, "GET nonsense\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 400 ")) {
		t.Errorf("got %q, %v", answer, err)
	}
}
