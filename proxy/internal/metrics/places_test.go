package metrics

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
)

// large has more to be written than sockets take.
func large(s *Sample) {
	*s = *full()
	one := s.Endpoints[0]
	for range DefaultLimits.Endpoints {
		s.Endpoints = append(s.Endpoints, one)
	}
}

// lazy asks for the metrics at an address, and reads nothing.
func lazy(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestScrapersThatDoNotRead: they make room for the next one, which is served in time; one that reads is not cut.
func TestScrapersThatDoNotRead(t *testing.T) {
	h := NewHandler(large, DefaultLimits)
	s := httptest.NewServer(h)
	defer s.Close()
	addr := strings.TrimPrefix(s.URL, "http://")
	first := lazy(t, addr)
	writing := func(n int) func() bool {
		return func() bool {
			h.places.mu.Lock()
			defer h.places.mu.Unlock()
			return len(h.places.writing) == n
		}
	}
	condition.Await(t, "the first is being written", writing(1))
	second := lazy(t, addr)
	condition.Await(t, "both are being written", writing(2))
	for range 2 {
		began := time.Now()
		response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(httptest.NewRequest(http.MethodGet, s.URL+"/metrics", nil))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusOK || err != nil || !strings.Contains(string(text[max(len(text)-1000, 0):]), "penstock_series_dropped") {
			t.Fatalf("%d, %d bytes, %v", response.StatusCode, len(text), err)
		}
		if took := time.Since(began); took > 10*(placeTime+stalledTime) {
			t.Errorf("it took %v", took)
		}
	}
	if !writing(1)() {
		t.Error("the second one was cut, though there was a place")
	}
	for name, c := range map[string]net.Conn{"first": first, "second": second} {
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		text, _ := io.ReadAll(c)
		if whole := strings.HasSuffix(string(text), "\r\n0\r\n\r\n"); whole != (name == "second") {
			t.Errorf("%s: whole %v", name, whole)
		}
		c.Close()
	}
}
