package compare

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"pgregory.net/rapid"
)

// A side2 writes the frames of one direction, by package http2.
type side2 struct {
	t   rapid.TB
	out bytes.Buffer
	f   *http2.Framer
	h   bytes.Buffer
	e   *hpack.Encoder
}

func newSide2(t rapid.TB) *side2 {
	s := &side2{t: t}
	s.f = http2.NewFramer(&s.out, nil)
	s.e = hpack.NewEncoder(&s.h)
	return s
}

func (s *side2) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// head writes a head of fields, in frames of so many bytes.
func (s *side2) head(id uint32, end bool, size int, fields ...string) {
	s.t.Helper()
	s.h.Reset()
	for i := 0; i < len(fields); i += 2 {
		s.ok(s.e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	b := s.h.Bytes()
	n := min(size, len(b))
	s.ok(s.f.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: b[:n], EndStream: end, EndHeaders: n == len(b),
		PadLength: uint8(size % 5), Priority: http2.PriorityParam{Weight: uint8(size % 2)},
	}))
	for b = b[n:]; len(b) > 0; b = b[n:] {
		n = min(size, len(b))
		s.ok(s.f.WriteContinuation(id, n == len(b), b[:n]))
	}
}

// requests2 are the requests of streams 1, 3, 5 and so on.
func requests2(t rapid.TB, paths ...string) []byte {
	s := newSide2(t)
	s.out.WriteString(preface)
	s.ok(s.f.WriteSettings())
	for i, path := range paths {
		s.head(uint32(2*i+1), false, 20, ":method", "POST", ":path", path, ":scheme", "https", "te", "trailers")
		s.ok(s.f.WriteData(uint32(2*i+1), true, []byte("request")))
	}
	return s.out.Bytes()
}

// A message2 is the answer of one stream.
type message2 struct {
	fields []string
	body   []byte
	status string
}

// answers2 writes the answers of all streams, in frames of sizes and in an order that are drawn.
func answers2(t *rapid.T, all []message2, odd int) []byte {
	s := newSide2(t)
	s.ok(s.f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: rapid.Uint32Range(1<<14, 1<<16).Draw(t, "setting")}))
	step := make([]int, len(all)) // 0 before the head, then bytes of the body that were written + 1
	for done := 0; done < len(all); {
		i := rapid.IntRange(0, len(all)-1).Draw(t, "stream")
		m, id := all[i], uint32(2*i+1)
		body := m.body
		if i == odd {
			body = append(slices.Clone(body), '!')
		}
		switch n := step[i]; {
		case n < 0:
		case n == 0:
			s.head(id, false, rapid.IntRange(1, 60).Draw(t, "size"), append([]string{":status", "200", "date", fmt.Sprint("now ", s.out.Len())}, m.fields...)...)
			step[i] = 1
		case n-1 < len(body):
			size := rapid.IntRange(1, len(body)-n+1).Draw(t, "data")
			s.ok(s.f.WriteDataPadded(id, false, body[n-1:n-1+size], make([]byte, size%3)))
			step[i] += size
			s.ok(s.f.WriteWindowUpdate(0, uint32(size)))
		default:
			s.head(id, true, 30, "grpc-status", m.status)
			step[i], done = -1, done+1
		}
		if rapid.IntRange(0, 9).Draw(t, "ping") == 0 {
			s.ok(s.f.WritePing(false, [8]byte{1}))
		}
	}
	return s.out.Bytes()
}

// TestHTTP2: streams are equal however their frames lie between each other's, are padded and cut; the one
// that differs has the name of its request.
func TestHTTP2(t *testing.T) {
	for _, framing := range []string{HTTP2, GRPC} {
		rapid.Check(t, func(t *rapid.T) {
			paths := rapid.SliceOfN(rapid.SampledFrom([]string{"/shop.Cart/Add", "/shop.Cart/List", "/users"}), 1, 6).Draw(t, "paths")
			var all []message2
			for range paths {
				m := message2{status: rapid.SampledFrom([]string{"0", "5"}).Draw(t, "status")}
				for range rapid.IntRange(0, 5).Draw(t, "fields") {
					m.fields = append(m.fields, "x-"+rapid.StringMatching("[a-z]{1,10}").Draw(t, "name"), rapid.StringMatching("[ -~]{0,100}").Draw(t, "value"))
				}
				body := rapid.SliceOfN(rapid.Byte(), 0, 500).Draw(t, "body")
				m.body = append([]byte{0, 0, 0, byte(len(body) >> 8), byte(len(body))}, body...)
				all = append(all, m)
			}
			odd := rapid.IntRange(0, len(all)-1).Draw(t, "odd")
			w := wire{requests2(t, paths...), answers2(t, all, -1), answers2(t, all, -1)}
			got := play(t, Config{Framing: framing}, w, drawn(t), true)
			if got.Equal != uint64(len(all)) || got.Different+got.Unsettled != 0 {
				t.Fatalf("equal sides: %+v", got)
			}
			w.shadow = answers2(t, all, odd)
			got = play(t, Config{Framing: framing}, w, drawn(t), true)
			name := paths[odd]
			if framing == HTTP2 {
				name = map[string]string{"/users": "POST /users"}[name]
				if name == "" {
					name = "POST /*"
				}
			}
			if got.Equal != uint64(len(all)-1) || got.Different != 1 || len(got.Examples) != 1 || got.Examples[0].Name != name {
				t.Fatalf("%s differs: %+v", name, got)
			}
		})
	}
}

// TestHTTP2Ends: a reset by the server is a part of the answer, one by the client its end.
func TestHTTP2Ends(t *testing.T) {
	answer := func(f func(s *side2)) []byte {
		s := newSide2(t)
		s.head(1, false, 100, ":status", "200")
		f(s)
		return s.out.Bytes()
	}
	reset := answer(func(s *side2) { s.ok(s.f.WriteRSTStream(1, http2.ErrCodeInternal)) })
	whole1 := answer(func(s *side2) { s.ok(s.f.WriteData(1, true, nil)) })
	open := answer(func(*side2) {})
	request := requests2(t, "/a")
	canceled := newSide2(t)
	canceled.ok(canceled.f.WriteRSTStream(1, http2.ErrCodeCancel))
	for _, c := range []struct {
		name string
		w    wire
		want Figures
	}{
		{"both reset", wire{request, reset, reset}, Figures{Equal: 1}},
		{"one reset", wire{request, whole1, reset}, Figures{Different: 1}},
		{"open", wire{request, open, open}, Figures{Equal: 1}},
		{"one open", wire{request, whole1, open}, Figures{Different: 1}},
		{"canceled", wire{append(slices.Clone(request), canceled.out.Bytes()...), whole1, open}, Figures{}},
	} {
		got := play(t, Config{Framing: HTTP2}, c.w, single, true)
		if f := count(got, "POST /a"); f != c.want {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// TestHTTP2Late: frames of a stream that has ended belong to no other.
func TestHTTP2Late(t *testing.T) {
	answer := func(late bool) []byte {
		s := newSide2(t)
		s.head(1, true, 100, ":status", "200")
		s.head(3, false, 100, ":status", "200")
		if late {
			s.ok(s.f.WriteData(1, false, []byte("late")))
			s.ok(s.f.WriteRSTStream(1, http2.ErrCodeNo))
		}
		s.ok(s.f.WriteData(3, true, []byte("body")))
		return s.out.Bytes()
	}
	for _, next := range []chunker{whole, single} {
		got := play(t, Config{Framing: HTTP2}, wire{requests2(t, "/a", "/b"), answer(true), answer(false)}, next, true)
		if got.Equal != 2 || got.Different+got.Unsettled != 0 {
			t.Errorf("%+v", got)
		}
	}
}

// TestHTTP2Masks: fields of head and trailers by name, and messages of gRPC by pattern, whose
// lengths differ then.
func TestHTTP2Masks(t *testing.T) {
	answer := func(id, body string) []byte {
		s := newSide2(t)
		s.head(1, false, 100, ":status", "200", "x-request-id", id)
		s.ok(s.f.WriteData(1, false, append([]byte{0, 0, 0, 0, byte(len(body))}, body...)))
		s.head(1, true, 100, "grpc-status", "0", "grpc-message", id)
		return s.out.Bytes()
	}
	w := wire{requests2(t, "/a.B/C"), answer("1", "id=17;"), answer("22", "id=4711;")}
	c := Config{Framing: GRPC, Mask: []Mask{{Field: "grpc.x-request-id"}, {Field: "grpc.grpc-message"}, {Pattern: `id=\d+`, Name: "/a.B/C"}}}
	if got := play(t, c, w, single, true); count(got, "/a.B/C") != (Figures{Equal: 1}) {
		t.Errorf("%+v", got)
	}
	for i := range c.Mask {
		less := c
		less.Mask = slices.Delete(slices.Clone(c.Mask), i, i+1)
		if got := play(t, less, w, single, true); got.Different != 1 {
			t.Errorf("without mask %d: %+v", i, got)
		}
	}
}

// TestHTTP2Memory: streams that the shadow does not answer end the comparison, and no more.
func TestHTTP2Memory(t *testing.T) {
	plan, _ := NewPlan(Config{Framing: GRPC})
	r, b := NewReport(), NewBudget(TotalBytes)
	s := plan.NewSession(b, r)
	q := newSide2(t)
	q.out.WriteString(preface)
	for i := range 1000 {
		q.head(uint32(2*i+1), true, 1000, ":method", "POST", ":path", fmt.Sprint("/a.B/C", i), "x", strings.Repeat("v", i))
	}
	s.Request(q.out.Bytes(), at(0))
	holds(t, s)
	if s.Stopped() != Full {
		t.Errorf("%v", s.Stopped())
	}
	s.End(true, at(0))
	if b.Used() != 0 {
		t.Errorf("%d bytes held", b.Used())
	}
}

// TestStaticTable: package hpack has all fields of the appendix.
func TestStaticTable(t *testing.T) {
	if len(static) != 61 || string(static[1].value) != "GET" || string(static[60].name) != "www-authenticate" {
		t.Errorf("%q", static)
	}
}

// TestHeads: fields are those that package hpack decodes, with tables of any size.
func TestHeads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b, want, got bytes.Buffer
		write := func(to *bytes.Buffer, name, value string) { fmt.Fprintf(to, "%q %q\n", name, value) }
		plan, _ := NewPlan(Config{Framing: HTTP2})
		s := plan.NewSession(NewBudget(TotalBytes), NewReport())
		d := newHeadDecoder(s, func(name, value []byte) { write(&got, string(name), string(value)) })
		oracle := hpack.NewDecoder(tableBytes, func(f hpack.HeaderField) { write(&want, f.Name, f.Value) })
		e := hpack.NewEncoder(&b)
		next := drawn(t)
		for range rapid.IntRange(1, 30).Draw(t, "heads") {
			if rapid.IntRange(0, 5).Draw(t, "resize") == 0 {
				e.SetMaxDynamicTableSize(rapid.Uint32Range(0, tableBytes).Draw(t, "size"))
			}
			for range rapid.IntRange(1, 8).Draw(t, "fields") { // one at least: package hpack refuses two changes of size in a row
				name := rapid.SampledFrom([]string{":status", "x-a", "x-b", "cookie", "date"}).Draw(t, "name")
				value := strings.Repeat(rapid.SampledFrom([]string{"a", "\xff", "200", "", "{"}).Draw(t, "text"), rapid.SampledFrom([]int{1, 10, 500}).Draw(t, "times"))
				if err := e.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: rapid.Bool().Draw(t, "sensitive")}); err != nil {
					t.Fatal(err)
				}
			}
			head := slices.Clone(b.Bytes())
			b.Reset()
			if _, err := oracle.Write(head); err != nil {
				t.Fatal(err)
			}
			if err := oracle.Close(); err != nil {
				t.Fatal(err)
			}
			for len(head) > 0 {
				n := next(len(head))
				if err := d.write(head[:n]); err != nil {
					t.Fatal(err)
				}
				head = head[n:]
			}
			if err := d.end(); err != nil || got.String() != want.String() {
				t.Fatalf("%v\n%s\nwant\n%s", err, got.String(), want.String())
			}
		}
		if d.size > tableBytes || cap(d.texts) > tableBytes || cap(d.entries) > tableBytes/entryBytes {
			t.Fatalf("the table has %d bytes, and memory for %d and %d fields", d.size, cap(d.texts), cap(d.entries))
		}
		holds(t, s)
		s.End(true, at(0))
	})
}

// FuzzHeads: heads that package hpack decodes are decoded alike, and none panics.
func FuzzHeads(f *testing.F) {
	f.Add([]byte{0x82, 0x86, 0x84, 0x41, 0x8c, 0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff}, uint8(3))
	f.Add([]byte{0x3f, 0xe1, 0x1f, 0x40, 1, 'a', 1, 'b', 0xbe, 0x20}, uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		var want, got []string
		oracle := hpack.NewDecoder(tableBytes, func(f hpack.HeaderField) { want = append(want, f.Name, f.Value) })
		_, err := oracle.Write(b)
		if err == nil {
			err = oracle.Close()
		}
		plan, _ := NewPlan(Config{Framing: HTTP2})
		s := plan.NewSession(NewBudget(TotalBytes), NewReport())
		d := newHeadDecoder(s, func(name, value []byte) { got = append(got, string(name), string(value)) })
		var mine error
		for rest := b; len(rest) > 0 && mine == nil; {
			n := min(len(rest), int(size)+1)
			mine, rest = d.write(rest[:n]), rest[n:]
			holds(t, s)
		}
		if err == nil && s.Stopped() == Going && (mine != nil || !slices.Equal(got, want)) {
			t.Fatalf("%v: %q, want %q", mine, got, want)
		}
	})
}

func FuzzHTTP2(f *testing.F) {
	s := newSide2(f)
	s.head(1, false, 7, ":status", "200", "date", "x")
	s.ok(s.f.WriteData(1, true, []byte("\x00\x00\x00\x00\x01x")))
	f.Add(requests2(f, "/a.B/C"), s.out.Bytes(), s.out.Bytes()[:30], uint8(3))
	fuzz(f, Config{Framing: HTTP2, Mask: []Mask{{Pattern: "[0-9]{2}"}, {Field: "http2.etag"}}})
}

func FuzzGRPC(f *testing.F) {
	s := newSide2(f)
	s.head(1, false, 7, ":status", "200", "date", "x")
	s.ok(s.f.WriteData(1, false, []byte("\x00\x00\x00\x00\x01x")))
	s.head(1, true, 7, "grpc-status", "0")
	f.Add(requests2(f, "/a.B/C"), s.out.Bytes(), s.out.Bytes()[:30], uint8(3))
	once, twice := newSide2(f), newSide2(f) // one side begins a stream again that it has ended
	for _, s := range []*side2{once, twice, twice} {
		s.head(2, true, 7, "grpc-status", "0")
	}
	f.Add([]byte("no preface"), twice.out.Bytes(), once.out.Bytes(), uint8(3))
	fuzz(f, Config{Framing: GRPC, Mask: []Mask{{Pattern: "[0-9]{2}"}}})
}

func BenchmarkGRPC(b *testing.B) {
	s, n := newSide2(b), 200
	body := append([]byte{0, 0, 0, 0x10, 0}, bytes.Repeat([]byte("v"), 4096)...)
	for i := range n {
		s.head(uint32(2*i+1), false, 1000, ":status", "200", "content-type", "application/grpc")
		s.ok(s.f.WriteData(uint32(2*i+1), false, body))
		s.head(uint32(2*i+1), true, 1000, "grpc-status", "0", "grpc-message", "")
	}
	bench(b, Config{Framing: GRPC}, []byte("no preface, since so many requests would be open at a time"), s.out.Bytes())
}
