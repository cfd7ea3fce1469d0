package filters_test

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/internal/filter"
)

const replaced = "secret=[removed]\nsecretary=clerk\n4111=****"

// rewriter loads an example, interpreted, which begins sooner, unless change says otherwise, with all the time that a machine needs that has
// other work to do.
func rewriter(t testing.TB, code []byte, config string, change ...func(*filter.RewriterConfig)) *filter.Rewriter {
	t.Helper()
	cfg := filter.RewriterConfig{Config: filter.Config{Name: "example", Config: config, Bounds: interpreted, Timeout: time.Minute}}
	cfg.Bounds.Memory, cfg.Bounds.Start = 8<<20, time.Minute
	for _, f := range change {
		f(&cfg)
	}
	r, err := filter.NewRewriter(t.Context(), code, cfg)
	must(t, err)
	t.Cleanup(r.Close)
	return r
}

func compiled(cfg *filter.RewriterConfig) { cfg.Bounds.Interpret = false }

type stream struct {
	t     testing.TB
	s     *filter.Stream
	woken chan struct{}
	out   strings.Builder
}

func newStream(t testing.TB, r *filter.Rewriter) *stream {
	s := &stream{t: t, s: r.NewStream(&filter.Connection{}), woken: make(chan struct{}, 1)}
	s.s.Begin(func() {
		select {
		case s.woken <- struct{}{}:
		default: // one of before has not been waited for
		}
	})
	return s
}

// put passes bytes; empty: nothing comes for a while.
func (s *stream) put(text string) {
	s.t.Helper()
	s.s.Put([]byte(text))
	s.take()
}

func (s *stream) take() {
	s.t.Helper()
	b := make([]byte, 1000)
	for {
		n, busy, err := s.s.Take(b)
		s.out.Write(b[:n])
		switch {
		case err != nil:
			s.t.Fatal(err)
		case busy:
			<-s.woken
		case n == 0:
			return
		}
	}
}

func (s *stream) end() string {
	s.t.Helper()
	s.s.End()
	s.take()
	s.s.Close()
	return s.out.String()
}

// TestReplace: the module of examples/filters/replace does as its comment says, in both directions, by whatever pieces. What it holds
// back goes on when nothing comes for a while.
func TestReplace(t *testing.T) {
	software.Long(t, "filters that the Go compiler makes")
	code := build(t, "replace")
	in, want := "a secret secretary pays 41114111 secre", "a [removed] [removed]ary pays ******** secre"
	for _, fromServer := range []bool{false, true} {
		r := rewriter(t, code, replaced, func(cfg *filter.RewriterConfig) { cfg.FromServer = fromServer })
		for _, n := range []int{1, 7, len(in)} {
			s := newStream(t, r)
			for rest := in; rest != ""; {
				k := min(n, len(rest))
				s.put(rest[:k])
				rest = rest[k:]
			}
			if got := s.out.String(); got != strings.TrimSuffix(want, "secre") {
				t.Errorf("in pieces of %d: %q", n, got)
			}
			if s.put(""); s.out.String() != want {
				t.Errorf("in pieces of %d, after a while: %q", n, s.out.String())
			}
			if got := s.end(); got != want {
				t.Errorf("in pieces of %d: %q, want %q", n, got, want)
			}
		}
	}
}
