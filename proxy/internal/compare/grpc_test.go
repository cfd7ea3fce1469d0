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

// A peer writes the frames of one direction, by package http2.
type peer struct {
	t   rapid.TB
	out bytes.Buffer
	f   *http2.Framer
	h   bytes.Buffer
	e   *hpack.Encoder
}

func newPeer(t rapid.TB) *peer {
	p := &peer{t: t}
	p.f = http2.NewFramer(&p.out, nil)
	p.e = hpack.NewEncoder(&p.h)
	p.ok(p.f.WriteSettings())
	return p
}

func newClient(t rapid.TB) *peer {
	p := newPeer(t)
	settings := bytes.Clone(p.out.Bytes())
	p.out.Reset()
	p.out.WriteString(http2.ClientPreface)
	p.out.Write(settings)
	return p
}

func (p *peer) ok(err error) {
	p.t.Helper()
	must(p.t, err)
}

func (p *peer) head(id uint32, end bool, fields ...string) {
	p.t.Helper()
	p.h.Reset()
	for i := 0; i < len(fields); i += 2 {
		p.ok(p.e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	n := len(p.h.Bytes())
	p.ok(p.f.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: p.h.Bytes(), EndStream: end, EndHeaders: true,
		PadLength: uint8(n % 5), Priority: http2.PriorityParam{Weight: uint8(n % 2)},
	}))
}

// calling is the requests of streams 1, 3, 5 and so on.
func calling(t rapid.TB, paths ...string) []byte {
	p := newClient(t)
	for i, path := range paths {
		p.head(uint32(2*i+1), false, ":method", "POST", ":path", path, ":scheme", "https", "te", "trailers")
		p.ok(p.f.WriteData(uint32(2*i+1), true, []byte("request")))
	}
	return p.out.Bytes()
}

// A reply is the answer of one stream.
type reply struct {
	fields []string
	body   []byte
	status string
}

// replies writes all answers, in frames of sizes and in an order that are drawn. That of the stream odd has a byte more.
func replies(t *rapid.T, all []reply, odd int) []byte {
	p := newPeer(t)
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
			p.head(id, false, append([]string{":status", "200", "date", fmt.Sprint("now ", p.out.Len())}, m.fields...)...)
			step[i] = 1
		case n-1 < len(body):
			size := rapid.IntRange(1, len(body)-n+1).Draw(t, "data")
			p.ok(p.f.WriteDataPadded(id, false, body[n-1:n-1+size], make([]byte, size%3)))
			step[i] += size
			p.ok(p.f.WriteWindowUpdate(0, uint32(size)))
		default:
			p.head(id, true, "grpc-status", m.status)
			step[i], done = -1, done+1
		}
		if rapid.IntRange(0, 9).Draw(t, "ping") == 0 {
			p.ok(p.f.WritePing(false, [8]byte{1}))
		}
	}
	return p.out.Bytes()
}

func count(s Snapshot, name string) Figures {
	for _, n := range s.Names {
		if n.Name == name {
			n.Lag = Lag{}
			return n.Figures
		}
	}
	return Figures{}
}

// TestGRPC: answers are equal however their frames lie between each other's, are padded and cut; the one that differs has the
// name of its request.
func TestGRPC(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		paths := rapid.SliceOfN(rapid.SampledFrom([]string{"/shop.Cart/Add", "/shop.Cart/List", "/users"}), 1, 6).Draw(t, "paths")
		var all []reply
		for range paths {
			m := reply{status: rapid.SampledFrom([]string{"0", "5"}).Draw(t, "status")}
			for range rapid.IntRange(0, 5).Draw(t, "fields") {
				m.fields = append(m.fields, "x-"+rapid.StringMatching("[a-z]{1,10}").Draw(t, "name"), rapid.StringMatching("[ -~]{0,100}").Draw(t, "value"))
			}
			body := rapid.SliceOfN(rapid.Byte(), 0, 500).Draw(t, "body")
			m.body = append([]byte{0, 0, 0, byte(len(body) >> 8), byte(len(body))}, body...)
			all = append(all, m)
		}
		odd := rapid.IntRange(0, len(all)-1).Draw(t, "odd")
		w := wire{calling(t, paths...), replies(t, all, -1), replies(t, all, -1)}
		got := play(t, Config{Framing: GRPC}, w, drawn(t), true)
		if got.Equal != uint64(len(all)) || got.Different+got.Unsettled != 0 {
			t.Fatalf("equal sides: %+v", got)
		}
		w.shadow = replies(t, all, odd)
		got = play(t, Config{Framing: GRPC}, w, drawn(t), true)
		if got.Equal != uint64(len(all)-1) || got.Different != 1 || len(got.Examples) != 1 || got.Examples[0].Name != paths[odd] {
			t.Fatalf("%s differs: %+v", paths[odd], got)
		}
	})
}

// TestGRPCEnds: a reset by the server is a part of the answer, one by the client its end.
func TestGRPCEnds(t *testing.T) {
	answer := func(f func(p *peer)) []byte {
		p := newPeer(t)
		p.head(1, false, ":status", "200")
		f(p)
		return p.out.Bytes()
	}
	reset := answer(func(p *peer) { p.ok(p.f.WriteRSTStream(1, http2.ErrCodeInternal)) })
	refused := answer(func(p *peer) { p.ok(p.f.WriteRSTStream(1, http2.ErrCodeRefusedStream)) })
	ended := answer(func(p *peer) { p.ok(p.f.WriteData(1, true, nil)) })
	cut := answer(func(p *peer) { p.ok(p.f.WriteData(1, true, []byte{0, 0})) })
	open := answer(func(*peer) {})
	request := calling(t, "/a")
	canceled := newClient(t)
	canceled.head(1, false, ":path", "/a")
	canceled.ok(canceled.f.WriteRSTStream(1, http2.ErrCodeCancel))
	for _, c := range []struct {
		name string
		w    wire
		want Figures
	}{
		{"both reset", wire{request, reset, reset}, Figures{Equal: 1}},
		{"another reset", wire{request, reset, refused}, Figures{Different: 1}},
		{"one reset", wire{request, ended, reset}, Figures{Different: 1}},
		{"a message that is cut", wire{request, ended, cut}, Figures{Different: 1}},
		{"open", wire{request, open, open}, Figures{Equal: 1}},
		{"one open", wire{request, ended, open}, Figures{Different: 1}},
		{"canceled", wire{canceled.out.Bytes(), ended, open}, Figures{}},
	} {
		for _, next := range []chunker{whole, single} {
			if got := play(t, Config{Framing: GRPC}, c.w, next, true); count(got, "/a") != c.want {
				t.Errorf("%s: %+v", c.name, got)
			}
		}
	}
}

// TestGRPCLate: frames of a stream that has ended belong to no other, whether requests were seen or not.
func TestGRPCLate(t *testing.T) {
	answer := func(late bool) []byte {
		p := newPeer(t)
		p.head(1, true, ":status", "200")
		p.head(3, false, ":status", "200")
		if late {
			p.ok(p.f.WriteData(1, false, []byte("late")))
			p.ok(p.f.WriteRSTStream(1, http2.ErrCodeNo))
		}
		p.ok(p.f.WriteData(3, true, []byte("body")))
		return p.out.Bytes()
	}
	for _, request := range [][]byte{calling(t, "/a", "/b"), []byte("no preface")} {
		for _, next := range []chunker{whole, single} {
			got := play(t, Config{Framing: GRPC}, wire{request, answer(true), answer(false)}, next, true)
			if got.Equal != 2 || got.Different+got.Unsettled != 0 {
				t.Errorf("%+v", got)
			}
		}
	}
}

// TestGRPCMasks: fields of head and trailers by name, messages by pattern, whose lengths differ then, and all answers of a method.
func TestGRPCMasks(t *testing.T) {
	answer := func(id, body string) []byte {
		p := newPeer(t)
		p.head(1, false, ":status", "200", "x-request-id", id)
		p.ok(p.f.WriteData(1, false, append([]byte{0, 0, 0, 0, byte(len(body))}, body...)))
		p.head(1, true, "grpc-status", "0", "grpc-message", id)
		return p.out.Bytes()
	}
	w := wire{calling(t, "/a.B/C"), answer("1", "id=17;"), answer("22", "id=4711;")}
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
	c.Mask = []Mask{{Field: "grpc.answer", Name: "/a.B/C"}}
	if got := play(t, c, w, single, true); count(got, "/a.B/C") != (Figures{Masked: 1}) {
		t.Errorf("%+v", got)
	}
}

// TestNamesAreRedacted: reports have no text of clients in names, unless redact is false or a mask has it.
func TestNamesAreRedacted(t *testing.T) {
	const path = "/sk_live_abc/def"
	for want, c := range map[string]Config{
		"/*":    {Redact: true},
		path:    {},
		path[:]: {Redact: true, Mask: []Mask{{Pattern: "x", Name: path}}},
	} {
		c.Framing = GRPC
		s, r, _ := session(t, c, TotalBytes)
		s.Request(calling(t, path, "/with a space"), at(0))
		if r.names[want] == nil || len(r.names) != 3 { // and other, and unknown
			t.Errorf("%+v: %v", c, r.names)
		}
		s.End(false, at(0))
	}
}

// TestMaskedNamesHaveTheirPlace: the names that masks have are counted by themselves, and masked, also if a client has called
// many other methods before.
func TestMaskedNamesHaveTheirPlace(t *testing.T) {
	t.Parallel()
	names := []string{"/shop.Clock/Now", "/shop.Clock/now-or-" + strings.Repeat("later", 30)}
	c := Config{Framing: GRPC}
	for _, name := range names {
		c.Mask = append(c.Mask, Mask{Field: "grpc.answer", Name: name})
	}
	s, r, _ := session(t, c, TotalBytes)
	defer s.End(false, at(0))
	for i := range 2 * maxNames {
		if s.methodName(fmt.Sprint("/a.B/C", i)); len(r.names) > maxNames {
			t.Fatalf("%d names", len(r.names))
		}
	}
	for _, name := range names {
		if got := s.methodName(name); got.text != name || !s.plan.masks.hidden(got.text) {
			t.Errorf("%s counts as %s", name, got.text)
		}
	}
}

// TestGRPCMemory: streams that the shadow does not answer end the comparison, and no more.
func TestGRPCMemory(t *testing.T) {
	s, _, b := session(t, Config{Framing: GRPC}, TotalBytes)
	q := newClient(t)
	for i := range 1000 {
		q.head(uint32(2*i+1), true, ":method", "POST", ":path", fmt.Sprint("/a.B/C", i), "x", strings.Repeat("v", i))
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

// TestOpenStreams: so many streams may be open at a time, and one side may be ahead by so many.
func TestOpenStreams(t *testing.T) {
	for _, c := range []struct{ open, ahead int }{{70, 0}, {35, 35}} {
		s, _, _ := session(t, Config{Framing: GRPC}, TotalBytes)
		s.Request(calling(t, slices.Repeat([]string{"/a.B/C"}, c.open)...), at(0))
		p := newPeer(t)
		for i := range c.ahead {
			p.head(uint32(2*i+1), false, ":status", "200", "content-type", "application/grpc", "x", fmt.Sprint(i))
			p.ok(p.f.WriteData(uint32(2*i+1), false, make([]byte, 300)))
			p.head(uint32(2*i+1), true, "grpc-status", "0", "grpc-message", "")
		}
		s.Shadow(p.out.Bytes(), at(0))
		if s.Stopped() != Going {
			t.Errorf("%+v: %v with %d bytes", c, s.Stopped(), s.purse.held)
		}
	}
}

// TestHeadsAreBounded: heads of more bytes, as they are encoded or decoded, than there may be end comparing, and so does one of
// several frames.
func TestHeadsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		write func(p *peer)
		full  bool
	}{
		"long":     {func(p *peer) { p.head(1, true, "a", strings.Repeat("{", 12_000)) }, false},
		"too long": {func(p *peer) { p.head(1, true, "a", strings.Repeat("a", 17_000)) }, true},
		"bomb":     {func(p *peer) { p.head(1, true, slices.Repeat([]string{"a", strings.Repeat("v", 3000)}, 6)...) }, true},
		"two parts": {func(p *peer) {
			p.ok(p.f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}}))
		}, true},
		"further": {func(p *peer) { p.ok(p.f.WriteContinuation(1, true, []byte{0x88})) }, true},
	} {
		p := newPeer(t)
		c.write(p)
		for _, next := range []chunker{whole, single} {
			got := play(t, Config{Framing: GRPC}, wire{primary: p.out.Bytes()}, next, false)
			if full := got.Stopped["full"] == 1; full != c.full {
				t.Errorf("%s: %v", name, got.Stopped)
			}
		}
	}
}

// TestSkipped: bytes of a client that were spliced past the process are no loss within a message. Elsewhere names are unknown.
func TestSkipped(t *testing.T) {
	for _, c := range []struct {
		skip int
		name string
	}{{10_000, "/c"}, {10_001, "unknown"}} {
		s, r, _ := session(t, Config{Framing: GRPC}, TotalBytes)
		q := newClient(t)
		q.head(1, false, ":path", "/a")
		q.ok(q.f.WriteData(1, true, make([]byte, 10_000)))
		n := q.out.Len() - 10_000
		q.head(3, true, ":path", "/c")
		s.Request(q.out.Bytes()[:n], at(0))
		s.RequestSkipped(c.skip)
		s.Request(q.out.Bytes()[n+c.skip:], at(0))
		p := newPeer(t)
		p.head(3, true, ":status", "200")
		s.Primary(p.out.Bytes(), at(0))
		s.Shadow(p.out.Bytes(), at(0))
		s.End(true, at(0))
		if got := r.Snapshot(); count(got, c.name).Equal != 1 || (c.name == "unknown") != (got.Unnamed == 1) {
			t.Errorf("%d skipped: %+v", c.skip, got)
		}
	}
}

// TestUnframed: answers that are of another protocol are a difference if they are the shadow's alone, whichever comes first.
func TestUnframed(t *testing.T) {
	p := newPeer(t)
	p.head(1, true, ":status", "200")
	good, bad := p.out.Bytes(), []byte("HTTP/1.1 400 Bad Request\r\n")
	request := calling(t, "/a")
	late := slices.Concat(good[:9], bytes.Repeat([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}, 10), good[9:])
	for _, c := range []struct {
		primary, shadow    []byte
		different, shadow1 uint64
	}{{good, bad, 1, 1}, {late, bad, 1, 1}, {bad, good, 0, 0}, {bad, bad, 0, 0}} {
		for _, next := range []chunker{whole, single} {
			got := play(t, Config{Framing: GRPC}, wire{request, c.primary, c.shadow}, next, true)
			if got.Different != c.different || got.ShadowUnframed != c.shadow1 || got.Stopped["unframed"] != 1 {
				t.Errorf("%q and %q: %+v", c.primary, c.shadow, got)
			}
		}
	}
}

func FuzzGRPC(f *testing.F) {
	p := newPeer(f)
	p.head(1, false, ":status", "200", "date", "x")
	p.ok(p.f.WriteData(1, false, []byte("\x00\x00\x00\x00\x01x")))
	p.head(1, true, "grpc-status", "0")
	f.Add(calling(f, "/a.B/C"), p.out.Bytes(), p.out.Bytes()[:30], uint8(3))
	once, twice := newPeer(f), newPeer(f) // one side begins a stream again that it has ended
	for _, s := range []*peer{once, twice, twice} {
		s.head(2, true, "grpc-status", "0")
	}
	f.Add([]byte("no preface"), twice.out.Bytes(), once.out.Bytes(), uint8(3))
	fuzz(f, Config{Framing: GRPC, Mask: []Mask{{Pattern: "[0-9]{2}"}}})
}
