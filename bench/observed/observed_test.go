package observed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/penstock/penstock/bench/observed"
	"github.com/penstock/penstock/bench/sink"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

func TestMain(m *testing.M) { leak.Main(m) }

// upstream runs a sink until the test ends.
func upstream(t *testing.T) string {
	t.Helper()
	return sockets.Run(t, func(ctx context.Context, l *net.TCPListener) error { return sink.Serve(ctx, l, 1) })
}

// proxy is a running proxy.
type proxy struct {
	t        *testing.T
	address  string
	question *json.Encoder
	answer   *json.Decoder
	end      func() error // its error, after it was asked to end
}

func run(t *testing.T, form observed.Form) *proxy {
	t.Helper()
	in, question := io.Pipe()
	answer, out := io.Pipe()
	done := make(chan error, 1)
	to := upstream(t)
	go func() { done <- observed.Serve(t.Context(), form, to, 10, in, out) }()
	p := &proxy{t: t, question: json.NewEncoder(question), answer: json.NewDecoder(answer)}
	p.end = func() error { _ = question.Close(); return <-done }
	var l observed.Listening
	if err := p.answer.Decode(&l); err != nil {
		t.Fatal(err)
	}
	p.address = l.Address
	return p
}

func (p *proxy) ask(q observed.Question) observed.Answer {
	p.t.Helper()
	var a observed.Answer
	if err := p.question.Encode(q); err != nil {
		p.t.Fatal(err)
	}
	if err := p.answer.Decode(&a); err != nil {
		p.t.Fatal(err)
	}
	return a
}

func TestEveryFormCarriesBytesAndAnswers(t *testing.T) {
	for _, form := range observed.Forms() {
		t.Run(string(form), func(t *testing.T) {
			p := run(t, form)
			c, err := net.Dial("tcp", p.address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			back := make([]byte, 5)
			if _, err := io.WriteString(c, "hello"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, back); err != nil || string(back) != "hello" {
				t.Errorf("received %q, %v", back, err)
			}
			if a := p.ask(observed.Question{}); a.Pauses != nil || (a.Summary != nil) != (form == observed.Penstock) {
				t.Errorf("without a question: %+v", a)
			} else if a.Summary != nil && a.Summary.Connections.Active != 1 {
				t.Errorf("summary: %+v", a.Summary)
			}
			first := p.ask(observed.Question{Collect: true, Pauses: true}).Pauses
			if first == nil || first.Collections < 1 || first.Longest <= 0 {
				t.Errorf("after a collection: %+v", first)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if err := p.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNoSuchForm(t *testing.T) {
	err := observed.Serve(t.Context(), "threads", "127.0.0.1:1", 1, strings.NewReader(""), io.Discard)
	if err == nil || !strings.Contains(err.Error(), `"threads"`) || !strings.Contains(err.Error(), "goroutines") {
		t.Errorf("got %v, want the existing forms", err)
	}
}

// A line that is no question ends the proxy with an error.
func TestNonsenseIsTheEnd(t *testing.T) {
	for _, form := range observed.Forms() {
		var out bytes.Buffer
		err := observed.Serve(t.Context(), form, upstream(t), 1, strings.NewReader("how are you?\n"), &out)
		if err == nil || !strings.Contains(err.Error(), string(form)) {
			t.Errorf("%s: got %v", form, err)
		}
	}
}

func TestPenstockNeedsAnAddress(t *testing.T) {
	if err := observed.Serve(t.Context(), observed.Penstock, "nowhere", 1, strings.NewReader(""), io.Discard); err == nil {
		t.Error("no error")
	}
}
