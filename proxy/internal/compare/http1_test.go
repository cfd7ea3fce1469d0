package compare

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A response that net/http has written.
type response struct {
	method, path string
	status       int
	body         string
	chunked      bool
}

func drawResponse(t *rapid.T) response {
	return response{
		method:  rapid.SampledFrom([]string{"GET", "HEAD", "POST", "DELETE"}).Draw(t, "method"),
		path:    rapid.SampledFrom([]string{"/", "/users", "/orders/17?x=1", "/4711"}).Draw(t, "path"),
		status:  rapid.SampledFrom([]int{200, 204, 304, 404, 500}).Draw(t, "status"),
		body:    rapid.StringN(0, 300, 300).Draw(t, "body"),
		chunked: rapid.Bool().Draw(t, "chunked"),
	}
}

// wire returns the response as net/http writes it.
func (r response) wire(t rapid.TB) []byte {
	if r.status == http.StatusNoContent || r.status == http.StatusNotModified {
		r.body = ""
	}
	r.chunked = r.chunked && r.body != "" && r.method != http.MethodHead
	h := &http.Response{
		StatusCode: r.status, ProtoMajor: 1, ProtoMinor: 1, Request: &http.Request{Method: r.method},
		Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader(r.body)), ContentLength: int64(len(r.body)),
	}
	if r.chunked {
		h.ContentLength, h.TransferEncoding, h.Trailer = -1, []string{"chunked"}, http.Header{"X-Sum": {"1"}}
	}
	var b bytes.Buffer
	if err := h.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestHTTP1: the ends of responses are where net/http finds them, whatever pieces they come in, and a
// body that differs is one difference of its request.
func TestHTTP1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w wire
		all := rapid.SliceOfN(rapid.Custom(drawResponse), 1, 10).Draw(t, "responses")
		odd := rapid.IntRange(0, len(all)-1).Draw(t, "odd")
		for i, r := range all {
			body := rapid.StringN(0, 50, 50).Draw(t, "request body")
			w.request = fmt.Appendf(w.request, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", r.method, r.path, len(body), body)
			if rapid.Bool().Draw(t, "early") {
				w.primary = append(w.primary, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"...)
				w.shadow = append(w.shadow, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"...)
			}
			w.primary = append(w.primary, r.wire(t)...)
			if i == odd {
				r.status = 501
			}
			w.shadow = append(w.shadow, r.wire(t)...)
		}
		readAll(t, w.primary, all)
		got := play(t, Config{Framing: HTTP1}, wire{w.request, w.primary, w.primary}, drawn(t), true)
		if got.Equal != uint64(len(all)) || got.Different+got.Unsettled != 0 || count(got, "unknown") != (Figures{}) {
			t.Fatalf("equal sides: %+v", got)
		}
		got = play(t, Config{Framing: HTTP1}, w, drawn(t), true)
		if got.Equal != uint64(len(all)-1) || got.Different != 1 || len(got.Examples) != 1 || got.Examples[0].Name != all[odd].name() {
			t.Fatalf("odd is %q: %+v", all[odd].name(), got)
		}
	})
}

// name returns the name that a report has for it.
func (r response) name() string {
	switch r.path {
	case "/orders/17?x=1":
		return r.method + " /orders"
	case "/4711":
		return r.method + " /*"
	}
	return r.method + " " + r.path
}

// readAll checks that net/http reads the same responses.
func readAll(t rapid.TB, b []byte, all []response) {
	r := bufio.NewReader(bytes.NewReader(b))
	for _, want := range all {
		res, err := http.ReadResponse(r, &http.Request{Method: want.method})
		for err == nil && res.StatusCode == 103 {
			res, err = http.ReadResponse(r, &http.Request{Method: want.method})
		}
		if err != nil || res.StatusCode != want.status {
			t.Fatalf("net/http reads %v, %v", res, err)
		}
		if _, err = io.Copy(io.Discard, res.Body); err != nil {
			t.Fatal(err)
		}
	}
	if r.Buffered() > 0 {
		t.Fatalf("%d bytes are left", r.Buffered())
	}
}

// TestHTTP1Ends: responses whose end is the stream's, tunnels, and requests that are not known.
func TestHTTP1Ends(t *testing.T) {
	get, headers := "GET /a HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nServer: x\r\n"
	for _, c := range []struct {
		name, request, primary, shadow string
		want                           string
		figures                        Figures
		stopped                        Stop
	}{
		{"until the end", get, headers + "\r\nbody", headers + "\r\nbody", "GET /a", Figures{Equal: 1}, Going},
		{"until the end, shorter", get, headers + "\r\nbody", headers + "\r\nbod", "GET /a", Figures{Different: 1}, Going},
		{"dates", get, headers + "Date: now\r\nContent-Length: 0\r\n\r\n", headers + "Date: later\r\nContent-Length: 0\r\n\r\n", "GET /a", Figures{Equal: 1}, Going},
		{"other header", get, headers + "Age: 1\r\nContent-Length: 0\r\n\r\n", headers + "Age: 2\r\nContent-Length: 0\r\n\r\n", "GET /a", Figures{Different: 1}, Going},
		{"tunnel", "GET /ws HTTP/1.1\r\nUpgrade: x\r\n\r\n", "HTTP/1.1 101 Switching\r\n\r\n\x81\x00", "HTTP/1.1 101 Switching\r\n\r\n\x81\x00", "GET /ws", Figures{Equal: 1}, Going},
		{"chunks elsewhere", get, headers + "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", headers + "Transfer-Encoding: chunked\r\n\r\n1;x\r\nb\r\n3\r\nody\r\n00\r\n\r\n", "GET /a", Figures{Equal: 1}, Going},
		{"cut", get, headers + "Content-Length: 4\r\n\r\nbody", headers + "Content-Length: 4\r\n\r\nbo", "GET /a", Figures{Different: 1}, Going},
		{"no HTTP", get, headers + "Content-Length: 0\r\n\r\n", "SSH-2.0-x\r\n", "GET /a", Figures{Different: 1}, Unframed},
		{"unknown request", "nonsense\r\n", headers + "Content-Length: 4\r\n\r\nbody", headers + "Content-Length: 4\r\n\r\nbody", "unknown", Figures{Unsettled: 1}, Unknown},
		{"two lengths", get, headers + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody", headers, "GET /a", Figures{Unsettled: 1}, Unframed},
	} {
		for _, next := range []chunker{whole, single} {
			got := play(t, Config{Framing: HTTP1}, wire{[]byte(c.request), []byte(c.primary), []byte(c.shadow)}, next, true)
			if count(got, c.want) != c.figures || c.stopped != Going && got.Stopped[c.stopped.String()] != 1 {
				t.Errorf("%s: %+v", c.name, got)
			}
		}
	}
}

// TestHTTP1Skipped: bytes of a request's body need not come into the process.
func TestHTTP1Skipped(t *testing.T) {
	plan, _ := NewPlan(Config{Framing: HTTP1, Redact: new(bool)})
	for _, c := range []struct {
		skip int
		name string
	}{{1000, "GET /b"}, {1001, "unknown"}} {
		r := NewReport()
		s := plan.NewSession(NewBudget(TotalBytes), r)
		s.Request([]byte("PUT /a HTTP/1.1\r\nContent-Length: 1000\r\n\r\n"), at(0))
		s.RequestSkipped(c.skip)
		s.Request([]byte("GET /b HTTP/1.1\r\n\r\n")[c.skip-1000:], at(0))
		for _, side := range []int{primary, shadow} {
			s.answer(side, []byte("HTTP/1.1 204 No\r\n\r\nHTTP/1.1 204 No\r\n\r\n"), at(0))
		}
		s.End(true, at(0))
		if got := r.Snapshot(); count(got, "PUT /a").Equal != 1 || count(got, c.name).Equal != 1 {
			t.Errorf("%+v", got)
		}
	}
}

// TestHTTP1Recorded: responses of a server of net/http, as its recorder has them, are equal to
// themselves but for masked fields.
func TestHTTP1Recorded(t *testing.T) {
	recorded := func(id string) []byte {
		rec := httptest.NewRecorder()
		rec.Header().Set("X-Request-Id", id)
		http.Error(rec, "gone", http.StatusGone)
		var b bytes.Buffer
		if err := rec.Result().Write(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	w := wire{[]byte("GET / HTTP/1.1\r\n\r\n"), recorded("1"), recorded("22")}
	if got := play(t, Config{Framing: HTTP1}, w, single, true); got.Different != 1 {
		t.Errorf("%+v", got)
	}
	if got := play(t, Config{Framing: HTTP1, Mask: []Mask{{Field: "http1.x-request-id"}}}, w, single, true); got.Equal != 1 {
		t.Errorf("%+v", got)
	}
	if got := play(t, Config{Framing: HTTP1, Mask: []Mask{{Field: "http1.x-request-id", Name: "GET /a"}}}, w, single, true); got.Different != 1 {
		t.Errorf("%+v", got)
	}
}

func FuzzHTTP1(f *testing.F) {
	f.Add([]byte("GET /a HTTP/1.1\r\n\r\n"), []byte("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"), []byte("HTTP/1.1 204 No\r\nDate: 1\r\n\r\n"), uint8(3))
	f.Add([]byte("HEAD / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"), []byte("HTTP/1.1 100 C\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), []byte("HTTP/1.0 101 OK\r\n\r\nxx"), uint8(1))
	fuzz(f, Config{Framing: HTTP1, Mask: []Mask{{Pattern: "[0-9]{2}"}, {Field: "http1.etag"}}})
}

func BenchmarkHTTP1(b *testing.B) {
	n := 1000
	head := "HTTP/1.1 200 OK\r\nServer: some server\r\nDate: Thu, 26 Nov 2026 17:00:00 GMT\r\nContent-Type: text/html\r\nContent-Length: 4000\r\n\r\n"
	bench(b, Config{Framing: HTTP1}, slices.Repeat([]byte("GET /page HTTP/1.1\r\nHost: x\r\n\r\n"), n), slices.Repeat([]byte(head+strings.Repeat("v", 4000)), n))
}
