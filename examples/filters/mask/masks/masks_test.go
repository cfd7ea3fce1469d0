package masks_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"

	"github.com/penstock/penstock/examples/filters/mask/masks"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/oracle"
)

// mostHeld is how many bytes of [oracle.All] are held back at most: 37 of a card number, 505 of a token, 318 of an address, and the longest
// match of each pattern.
const mostHeld = 37 + 505 + 318 + 7 + 8 + 11 + 6

// masked has a stream masked in pieces, of which cut returns the lengths; 0: the bytes held back are let go, since none came in
// time.
func masked(t testing.TB, config, text string, cut func() int) (string, masks.Counts) {
	t.Helper()
	s := must.Get(masks.Parse(config))(t)
	m := s.NewMasker()
	var out, b []byte // b is held back
	put := func(more string, last bool) {
		b = append(b, more...)
		before := string(b)
		held, changed := m.Mask(b, last)
		if held != m.Held() || held > max(mostHeld, 256) || last && held > 0 {
			t.Fatalf("%d bytes are held, %v", held, last)
		}
		if changed != (before != string(b)) && !strings.Contains(before, "*") {
			t.Fatalf("changed: %v, of %q to %q", changed, before, b)
		}
		out = append(out, b[:len(b)-held]...)
		b = b[len(b)-held:]
	}
	for in := text; in != ""; {
		n := min(cut(), len(in))
		put(in[:n], n == 0)
		in = in[n:]
	}
	put("", true)
	return string(out), m.Counts()
}

// TestMasks: examples of each kind, and of bytes that only look like one.
func TestMasks(t *testing.T) {
	jwt := "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN"
	for _, c := range []struct {
		kind     masks.Kind
		in, want string
	}{
		{masks.Card, "pay 4111 1111 1111 1111.", "pay **** **** **** 1111."},
		{masks.Card, "5-4111-1111-1111-1111", "5-****-****-****-1111"},
		{masks.Card, "378282246310005,4222222222222", "***********0005,*********2222"},
		{masks.Card, "4111111111111112 1111 a4111111111111111 4111111111111111b", "4111111111111112 1111 a************1111 ************1111b"},
		{masks.Card, "D\x00\x00\x00\x1d\x00\x01\x00\x00\x00\x134111 1111 1111 1111C\x00", "D\x00\x00\x00\x1d\x00\x01\x00\x00\x00\x13**** **** **** 1111C\x00"},
		{masks.Card, "4111  1111 1111 1111", "4111  1111 1111 1111"},
		{masks.Card, "1764176400123 00000000000000 123456789012345678901234", "1764176400123 00000000000000 123456789012345678901234"},
		{masks.Token, "Authorization: Bearer abc.def/ghi=\r\n", "Authorization: Bearer ************\r\n"},
		{masks.Token, "BEARER short;", "BEARER short;"},
		{masks.Token, "t=" + jwt + " x", "t=eyJ" + strings.Repeat("*", len(jwt)-3) + " x"},
		{masks.Token, `{"k":"ghp_` + strings.Repeat("a1", 18) + `"}`, `{"k":"ghp_` + strings.Repeat("*", 36) + `"}`},
		{masks.Token, "AKIAIOSFODNN7EXAMPLE sk_test_short xAKIAIOSFODNN7EXAMPLE", "AKIA**************** sk_test_short xAKIAIOSFODNN7EXAMPLE"},
		{masks.Email, "to <john.doe+x@mail.example.com>.", "to <**********@****.*******.***>."},
		{masks.Email, "a@b a@b.c @b.com a@.com user@host-1.io", "a@b a@b.c @b.com a@.com ****@****-*.**"},
	} {
		got, n := masked(t, c.kind.String(), c.in, func() int { return len(c.in) })
		if got != c.want || n.Matches[c.kind] == 0 != (c.in == c.want) || n.Late != 0 {
			t.Errorf("%q is\n%q, want\n%q; %+v", c.in, got, c.want, n)
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
		got, n := masked(t, oracle.All, text, func() int {
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
	for range 500 {
		text := oracle.Text(r)
		got, _ := masked(t, oracle.All, text, func() int { return r.IntN(8) })
		for i := range text {
			if got[i] != text[i] && got[i] != '*' {
				t.Fatalf("%q has become %q", text, got)
			}
		}
	}
}

// TestParse: a configuration, or a pattern, that cannot be masked in a stream is refused, and why.
func TestParse(t *testing.T) {
	for text, want := range map[string]error{
		"": masks.ErrNone, "\n": masks.ErrNone, "cards": masks.ErrNone, "card x": masks.ErrNone, "card, email": masks.ErrNone, "pattern": masks.ErrNone, "card\r\n\n email ": nil,
		`pattern=a{3,5}(b|c)?`: nil, `pattern=[^"]{1,40}`: nil, `pattern=\d{4}`: nil, `pattern=\xff\x00`: nil, `pattern=(?i)key\sb`: nil,
		`pattern=a+`: masks.ErrUnbounded, `pattern=a*`: masks.ErrUnbounded, `pattern=x{3,}`: masks.ErrUnbounded, `pattern=a{257}`: masks.ErrUnbounded, `pattern=(a{20}){20}`: masks.ErrUnbounded,
		`pattern=a?`: masks.ErrEmpty, `pattern=`: masks.ErrEmpty, `pattern=a|`: masks.ErrEmpty,
		`pattern=^a`: masks.ErrAssertion, `pattern=a$`: masks.ErrAssertion, `pattern=\bab`: masks.ErrAssertion,
		`pattern=é`: masks.ErrNotASCII, `pattern=(`: masks.ErrPattern, `pattern=(?=a)b`: masks.ErrPattern,
		`pattern=([a-f]{9}|[b-g]{9}|[c-h]{9}|[d-i]{9}|[e-j]{9}){28}`:                                         masks.ErrLarge,
		"pattern=[a-z]{250}\npattern=[a-z]{251}\npattern=[a-z]{252}\npattern=[a-z]{253}\npattern=[a-z]{254}": masks.ErrLarge,
	} {
		if _, err := masks.Parse(text); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

// TestAllocations: masking allocates nothing.
func TestAllocations(t *testing.T) {
	s := must.Get(masks.Parse(oracle.All))(t)
	m := s.NewMasker()
	text := strings.Repeat("4111 1111 1111 1111 joe@example.com Bearer abcdefghijk secret ID-1 ", 20)
	b := make([]byte, len(text))
	if n := testing.AllocsPerRun(100, func() {
		copy(b, text)
		m.Mask(b, true)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzMasks: whatever the text and however it is cut, the result is that of the plainest implementation. In proxy/test/filters the module is held
// to that.
func FuzzMasks(f *testing.F) {
	f.Add("4111 1111 1111 1111 joe@example.com", uint64(1))
	f.Add("Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIi ID-12345 xabx", uint64(2))
	r := rand.New(rand.NewPCG(1, 2))
	for i := range uint64(500) {
		f.Add(oracle.Text(r), i)
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		config := []string{"card", "token", "email", oracle.All[strings.Index(oracle.All, "pattern"):], oracle.All}[seed%5]
		want := oracle.Mask(config, text)
		got, n := masked(t, config, text, func() int { return 1 + r.IntN(1+int(seed%19)) })
		if got != want || n.Late != 0 {
			t.Errorf("%s: %q is\n%q, want\n%q; %+v", config, text, got, want, n)
		}
	})
}

// FuzzPatterns: so is that of any pattern.
func FuzzPatterns(f *testing.F) {
	f.Add(`a(b|c){1,3}[^d]?`, "abcabcabd")
	f.Add(`\Qab`, "abab")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		config := "pattern=" + pattern
		if _, err := masks.Parse(config); err != nil || strings.ContainsFunc(pattern, unicode.IsSpace) || len(text) > 2000 {
			return
		}
		if got, _ := masked(t, config, text, func() int { return 3 }); got != oracle.Mask(config, text) {
			t.Errorf("%s of %q is %q", pattern, text, got)
		}
	})
}
