package mask_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/mask"
)

var all = []mask.Kind{mask.Card, mask.Token, mask.Email}

var own = []string{`ID-[0-9]{4}`, `a(b|cd){1,3}e?`, `x[^x\n]{0,9}x`, `(?i)secret`}

// masked has a stream masked in pieces, of which cut returns the lengths; 0: the bytes held back are let go, since none came in
// time.
func masked(t testing.TB, s *mask.Set, text string, cut func() int) (string, mask.Totals) {
	t.Helper()
	counts := new(mask.Counts)
	m := s.NewMasker(counts)
	buffer := make([]byte, m.Room()+len(text))
	var out []byte
	release := func() {
		from, to, err := m.Release(buffer)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, buffer[from:to]...)
	}
	for in := text; in != ""; {
		n := min(cut(), len(in))
		if n == 0 {
			release()
			continue
		}
		at := m.Room()
		b := buffer[:at+copy(buffer[at:], in[:n])]
		from, to, err := m.Rewrite(b, at)
		if err != nil {
			t.Fatal(err)
		}
		if out = append(out, b[from:to]...); m.Held() > m.Room() {
			t.Fatalf("%d bytes are held, more than %d", m.Held(), m.Room())
		}
		in = in[n:]
		if len(out)+m.Held() != len(text)-len(in) {
			t.Fatalf("%d bytes came out and %d are held, of %d", len(out), m.Held(), len(text)-len(in))
		}
	}
	release()
	if m.Held() != 0 || counts.Totals().Bytes != int64(len(text)) {
		t.Fatalf("%d bytes are held at the end, %d were counted of %d", m.Held(), counts.Totals().Bytes, len(text))
	}
	return string(out), counts.Totals()
}

func newSet(t testing.TB, kinds []mask.Kind, patterns ...string) *mask.Set {
	t.Helper()
	s, err := mask.New(kinds, patterns)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func whole(text string) func() int { return func() int { return len(text) } }

// TestMasks: examples of each kind, and of bytes that only look like one.
func TestMasks(t *testing.T) {
	jwt := "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN"
	for _, c := range []struct {
		kind     mask.Kind
		in, want string
	}{
		{mask.Card, "pay 4111 1111 1111 1111.", "pay **** **** **** 1111."},
		{mask.Card, "5-4111-1111-1111-1111", "5-****-****-****-1111"},
		{mask.Card, "378282246310005,4222222222222", "***********0005,*********2222"},
		{mask.Card, "4111111111111112 1111 a4111111111111111 4111111111111111b", "4111111111111112 1111 a************1111 ************1111b"},
		{mask.Card, "D\x00\x00\x00\x1d\x00\x01\x00\x00\x00\x134111 1111 1111 1111C\x00", "D\x00\x00\x00\x1d\x00\x01\x00\x00\x00\x13**** **** **** 1111C\x00"},
		{mask.Card, "4111  1111 1111 1111", "4111  1111 1111 1111"},
		{mask.Card, "1764176400123 00000000000000 123456789012345678901234", "1764176400123 00000000000000 123456789012345678901234"},
		{mask.Token, "Authorization: Bearer abc.def/ghi=\r\n", "Authorization: Bearer ************\r\n"},
		{mask.Token, "BEARER short;", "BEARER short;"},
		{mask.Token, "t=" + jwt + " x", "t=eyJ" + strings.Repeat("*", len(jwt)-3) + " x"},
		{mask.Token, `{"k":"ghp_` + strings.Repeat("a1", 18) + `"}`, `{"k":"ghp_` + strings.Repeat("*", 36) + `"}`},
		{mask.Token, "AKIAIOSFODNN7EXAMPLE sk_test_short xAKIAIOSFODNN7EXAMPLE", "AKIA**************** sk_test_short xAKIAIOSFODNN7EXAMPLE"},
		{mask.Email, "to <john.doe+x@mail.example.com>.", "to <**********@****.*******.***>."},
		{mask.Email, "a@b a@b.c @b.com a@.com user@host-1.io", "a@b a@b.c @b.com a@.com ****@****-*.**"},
	} {
		got, n := masked(t, newSet(t, []mask.Kind{c.kind}), c.in, whole(c.in))
		if got != c.want || n.Matches[c.kind] == 0 != (c.in == c.want) || n.Late != 0 {
			t.Errorf("%q is\n%q, want\n%q; %+v", c.in, got, c.want, n)
		}
	}
}

// TestSplitAtAnyByte: each text that is masked is masked alike if it comes in two pieces, or a byte at a time.
func TestSplitAtAnyByte(t *testing.T) {
	text := "card 5500-0055-5555-5559, Bearer abcdefgh12345678 to joe@example.org; eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.sig ID-0042 secret 4111111111111111 end@x.y"
	s := newSet(t, all, own...)
	want := oracle(text, all, own)
	if strings.Count(want, "*") < 90 {
		t.Fatal(want)
	}
	for at := 1; at <= len(text); at++ {
		first := true
		got, _ := masked(t, s, text, func() int {
			if first {
				first = false
				return at
			}
			return len(text)
		})
		if got != want {
			t.Fatalf("split at %d it is\n%q, want\n%q", at, got, want)
		}
		if got, _ := masked(t, s, text, func() int { return at }); got != want {
			t.Fatalf("in pieces of %d it is\n%q, want\n%q", at, got, want)
		}
	}
}

// pieces are joined at random.
var pieces = []string{
	" ", "-", ".", "@", "_", "\n", "*", "a", "Z", "4", "41", "4111", "1111", "4111111111111111", "378282246310005", "5500 0055 5555 5559", "0", "9", "13", "abc", "x", "é",
	"Bearer ", "bearer", "eyJ", "eyJhbGciOiJIUzI1NiJ9", ".eyJzdWIiOiIx", "sk-", "sk_live_", "ghp_", "github_", "pat_", "AKIA", "IOSFODNN7EXAMPLE", "xoxb-", "SG.", "abcdefghijklmnop", "joe", "joe@", "example", ".com", ".c1", "+",
	"ID-", "12", "345", "b", "cd", "e", "sec", "ReT", "=", "/",
}

func randomText(r *rand.Rand) string {
	var b strings.Builder
	some := pieces
	if from := r.IntN(len(pieces)); r.IntN(2) == 0 {
		some = pieces[from:min(from+8, len(pieces))]
	}
	for range r.IntN(60) {
		b.WriteString(some[r.IntN(len(some))])
		if r.IntN(400) == 0 {
			b.WriteString(strings.Repeat(some[r.IntN(len(some))], r.IntN(300)))
		}
	}
	return b.String()
}

// TestAsTheOracle: whatever the text and however it is cut, the result is that of the plainest implementation.
func TestAsTheOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	sets := [][]mask.Kind{{mask.Card}, {mask.Token}, {mask.Email}, nil, all}
	for round := range 4000 {
		kinds, text := sets[round%len(sets)], randomText(r)
		var patterns []string
		if kinds == nil || len(kinds) > 1 {
			patterns = own
		}
		want := oracle(text, kinds, patterns)
		most := 1 + r.IntN(12)
		got, n := masked(t, newSet(t, kinds, patterns...), text, func() int { return 1 + r.IntN(most) })
		if got != want {
			t.Fatalf("%v of %q is\n%q, want\n%q", kinds, text, got, want)
		}
		if n.Late != 0 {
			t.Fatalf("%q: %+v", text, n)
		}
	}
}

// TestLetGo: bytes that are let go because nothing came in time are as they were, or masked, and what follows is masked as if
// they had been held. Those that would have been masked are counted.
func TestLetGo(t *testing.T) {
	for _, c := range []struct {
		pieces []string // between which nothing comes in time
		want   string
		late   int64
	}{
		{[]string{"4111 1111", " 1111 1111\n"}, "4111 1111 **** 1111\n", 8},
		{[]string{"4111 1111 1111 1111", "\n"}, "**** **** **** 1111\n", 0},
		{[]string{"jo", "hn@example.com "}, "jo**@*******.*** ", 2},
		{[]string{"Bearer xyz", "defgh"}, "Bearer xyz*****", 3},
		{[]string{"ID-", "0042"}, "ID-****", 3},
	} {
		text, i := strings.Join(c.pieces, ""), 0
		got, n := masked(t, newSet(t, all, own...), text, func() int {
			if i++; i%2 == 0 {
				return 0
			}
			return len(c.pieces[i/2])
		})
		if got != c.want || n.Late != c.late {
			t.Errorf("%q is %q (%d late), want %q (%d)", c.pieces, got, n.Late, c.want, c.late)
		}
	}
	// Whatever is let go: nothing is lost, and nothing is changed but to asterisks.
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		text := randomText(r)
		got, _ := masked(t, newSet(t, all, own...), text, func() int { return r.IntN(8) })
		for i := range text {
			if got[i] != text[i] && got[i] != '*' {
				t.Fatalf("%q has become %q", text, got)
			}
		}
	}
}

// TestPatterns: a pattern that cannot be masked in a stream is refused, and why.
func TestPatterns(t *testing.T) {
	for text, want := range map[string]error{
		`a{3,5}(b|c)?`: nil, `[^"]{1,40}`: nil, `\d{4}`: nil, `\xff\x00`: nil, `(?i)key`: nil,
		`a+`: mask.ErrUnbounded, `a*`: mask.ErrUnbounded, `x{3,}`: mask.ErrUnbounded, `a{257}`: mask.ErrUnbounded, `(a{20}){20}`: mask.ErrUnbounded,
		`a?`: mask.ErrEmpty, ``: mask.ErrEmpty, `a|`: mask.ErrEmpty,
		`^a`: mask.ErrAssertion, `a$`: mask.ErrAssertion, `\bab`: mask.ErrAssertion,
		`é`: mask.ErrNotASCII, `(`: mask.ErrPattern, `(?=a)b`: mask.ErrPattern,
		`([a-f]{9}|[b-g]{9}|[c-h]{9}|[d-i]{9}|[e-j]{9}){28}`: mask.ErrLarge,
	} {
		if err := mask.CheckPattern(text); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

// TestAllocations: masking allocates nothing.
func TestAllocations(t *testing.T) {
	m := newSet(t, all, own...).NewMasker(new(mask.Counts))
	text := strings.Repeat("4111 1111 1111 1111 joe@example.com Bearer abcdefghijk secret ID-1 ", 20)
	b := make([]byte, m.Room()+len(text))
	if n := testing.AllocsPerRun(100, func() {
		copy(b[m.Room():], text)
		_, _, _ = m.Rewrite(b, m.Room())
		_, _, _ = m.Release(b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkWorstPattern is the time of one call of Rewrite with the patterns that take longest.
func BenchmarkWorstPattern(b *testing.B) {
	for _, own := range [][]string{{"[a-z]{255}[0-9]"}, {"([a-z]{0,80}){3}[0-9]"}, {"ID-[0-9]{4}"}} {
		b.Run(own[0], func(b *testing.B) {
			m := newSet(b, nil, own...).NewMasker(new(mask.Counts))
			buffer := bytes.Repeat([]byte("a"), m.Room()+m.Most())
			before := cpuTime(b)
			for b.Loop() {
				_, _, _ = m.Rewrite(buffer, m.Room())
			}
			b.ReportMetric(float64(m.Most()), "bytes/op")
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
		})
	}
}

// TestRoom: the numbers of docs/rewrite.md.
func TestRoom(t *testing.T) {
	for _, c := range []struct {
		kinds []mask.Kind
		own   []string
		want  int
	}{{[]mask.Kind{mask.Card}, nil, 37}, {[]mask.Kind{mask.Token}, nil, 505}, {[]mask.Kind{mask.Email}, nil, 318}, {all, nil, 860}, {nil, []string{"ID-[0-9]{4}"}, 7}} {
		if n := newSet(t, c.kinds, c.own...).Room(); n != c.want {
			t.Errorf("%v, %v: %d bytes, want %d", c.kinds, c.own, n, c.want)
		}
	}
}

func FuzzMasks(f *testing.F) {
	f.Add("4111 1111 1111 1111 joe@example.com", uint64(1))
	f.Add("Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIi ID-12345 xabx", uint64(2))
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		want := oracle(text, all, own)
		got, _ := masked(t, newSet(t, all, own...), text, func() int { return 1 + r.IntN(1+int(seed%9)) })
		if got != want {
			t.Errorf("%q is\n%q, want\n%q", text, got, want)
		}
	})
}

func FuzzPatterns(f *testing.F) {
	f.Add(`a(b|c){1,3}[^d]?`, "abcabcabd")
	f.Add(`\Qab`, "abab")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		s, err := mask.New(nil, []string{pattern})
		if err != nil || len(text) > 2000 {
			return
		}
		if got, _ := masked(t, s, text, func() int { return 3 }); got != string(maskPattern([]byte(text), pattern)) {
			t.Errorf("%s of %q is %q", pattern, text, got)
		}
	})
}

// cpuTime is the time that this process has had a processor.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkMasks is the speed of each kind: in prose with a little of everything, in random bytes, and in digits. Its MB/cpu-s do not
// depend on other work of the machine.
func BenchmarkMasks(b *testing.B) {
	prose := []byte(strings.Repeat("The quick brown fox (no. 4711) jumps over the lazy dog; see https://example.com/a?b=1. ", 700) +
		"4111 1111 1111 1111 joe@example.com Bearer abcdefghijk ")
	random := make([]byte, len(prose))
	r := rand.New(rand.NewPCG(1, 1))
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	for _, of := range []struct {
		name  string
		bytes []byte
	}{{"prose", prose}, {"random", random}, {"digits", bytes.Repeat([]byte("4 "), len(prose)/2)}} {
		for _, c := range []struct {
			name  string
			kinds []mask.Kind
			own   []string
		}{{"card", []mask.Kind{mask.Card}, nil}, {"token", []mask.Kind{mask.Token}, nil}, {"email", []mask.Kind{mask.Email}, nil}, {"all", all, nil}, {"literal", nil, []string{"ID-[0-9]{4}"}}, {"class", nil, []string{"[a-z]{3}[0-9]{4}"}}} {
			b.Run(of.name+"/"+c.name, func(b *testing.B) {
				m := newSet(b, c.kinds, c.own...).NewMasker(new(mask.Counts))
				buffer := make([]byte, m.Room()+len(of.bytes))
				b.SetBytes(int64(len(of.bytes)))
				b.ReportAllocs()
				before := cpuTime(b)
				for b.Loop() {
					copy(buffer[m.Room():], of.bytes)
					_, _, _ = m.Rewrite(buffer, m.Room())
				}
				b.ReportMetric(float64(len(of.bytes))*float64(b.N)/1e6/(cpuTime(b)-before).Seconds(), "MB/cpu-s")
			})
		}
	}
}
