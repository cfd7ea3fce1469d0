package display_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/penstock/penstock/proxy/display"
)

// hostile are malicious texts.
var hostile = []string{
	"\x1b[2J\x1b]0;owned\a", "a\nb", "a\r\nb", "a\tb", "\x00", "\x7f", "\u009b31m", "\x9b31m", "\u2028", "\u2029", "\u202egnp.exe", "\u2066x\u2069",
	"\u200e\u200f\u061c", "\xff\xfe", "\xed\xa0\x80", "a\u0301", "日本", "é", `\x1b`, "'\"\\", " ", "", "\ufffd", "\ufeff", "\u00a0", "\U000e0041", "\b\b\bgone", "\v\f",
}

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		"web-1.example:443":      "web-1.example:443",
		"日本 é a\u0301 \ufffd":    "日本 é a\u0301 \ufffd",
		"a\nb\tc\x1b[31m":        `a\nb\tc\x1b[31m`,
		"\xff\x9b\u009b\u202e":   `\xff\x9b\u009b\u202e`,
		"\x00\x7f\r\u2028\ufeff": `\x00\x7f\r\u2028\ufeff`,
	} {
		if got := display.Text(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
	if got := display.Lines("a\tb\x1b\r\nc\n"); got != `a\tb\x1b\r`+"\nc\n" {
		t.Errorf("%q", got)
	}
}

// TestExcerpt: an excerpt is one line, that of Text, and never longer than its limit.
func TestExcerpt(t *testing.T) {
	for _, text := range append(hostile, strings.Join(hostile, ""), strings.Repeat("日", 20), strings.Repeat("a", 20), strings.Repeat("\x00", 20)) {
		for most := 3; most < 90; most++ {
			got, whole := display.Excerpt(text, most), display.Text(text)
			cut, shortened := strings.CutSuffix(got, "…")
			if len(got) > most || !utf8.ValidString(got) || !strings.HasPrefix(whole, cut) || shortened == (len(whole) <= most) {
				t.Errorf("%d bytes of %q: %q", most, text, got)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	for _, text := range []string{"", "web", "web 1", "日本", "a\u0301", strings.Repeat("x", display.MaxName)} {
		if err := display.Check(text, display.MaxName); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"a\nb", "\x1b", "\x7f", "\u009b", "\u202e", "\u200b", "\u00a0", "\xff", strings.Repeat("x", display.MaxName+1), strings.Repeat("\xff", 1000)} {
		err := display.Check(text, display.MaxName)
		if err == nil || len(err.Error()) > 500 || display.Text(err.Error()) != err.Error() {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// moves reports whether a text has a character that a terminal obeys, or has invalid bytes.
func moves(text, but string) bool {
	return !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool {
		return (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || unicode.In(r, unicode.Zl, unicode.Zp)) && !strings.ContainsRune(but, r)
	})
}

func FuzzText(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for but, got := range map[string]string{"": display.Text(text), "\n": display.Lines(text)} {
			if moves(got, but) {
				t.Errorf("%q is shown as %q", text, got)
			}
		}
		if plain := display.Text(text) == text; plain != (display.Check(text, len(text)) == nil) {
			t.Errorf("%q is checked otherwise than it is shown", text)
		}
	})
}

// FuzzWriter: JSON keeps its meaning through a writer, and the log has one line for each
// record.
func FuzzWriter(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var out bytes.Buffer
		e := json.NewEncoder(display.NewWriter(&out))
		e.SetEscapeHTML(false)
		if err := e.Encode(map[string]string{text: text}); err != nil {
			t.Fatal(err)
		}
		var back map[string]string
		said := strings.ToValidUTF8(text, "\ufffd")
		if utf8.ValidString(text) && (json.Unmarshal(out.Bytes(), &back) != nil || back[said] != said) {
			t.Errorf("%q is written %q", text, out.String())
		}
		if moves(out.String(), "\n\t") {
			t.Errorf("%q is written %q", text, out.String())
		}
		for _, handler := range []func(io.Writer, *slog.HandlerOptions) slog.Handler{
			func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(w, o) },
			func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(w, o) },
		} {
			out.Reset()
			slog.New(handler(display.NewWriter(&out), nil)).Info(text, text, text, "key", text)
			if moves(out.String(), "\n") || strings.Count(out.String(), "\n") != 1 {
				t.Errorf("%q is logged %q", text, out.String())
			}
		}
	})
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		-1: "-1 B", 0: "0 B", 999: "999 B", 1000: "1.00 kB", 1234: "1.23 kB", 9_994: "9.99 kB", 9_995: "10.0 kB", 99_949: "99.9 kB", 99_950: "100 kB",
		999_499: "999 kB", 999_500: "1.00 MB", 12_345_678_901: "12.3 GB", math.MaxInt64: "9.22 EB",
	} {
		if got := display.Bytes(n); got != want {
			t.Errorf("%d bytes are written as %q, want %q", n, got, want)
		}
	}
}

// TestFixed: the numbers of toFixed, in which half of the last digit is rounded up where a float64 has just that.
func TestFixed(t *testing.T) {
	for _, c := range []struct {
		x      float64
		digits int
		want   string
	}{
		{14.5, 0, "15"},
		{13.5, 0, "14"},
		{14.499, 0, "14"},
		{0, 1, "0.0"},
		{12.25, 1, "12.3"},
		{12.75, 1, "12.8"},
		{12.35, 1, "12.3"},
		{0.125, 2, "0.13"},
		{1.005, 2, "1.00"},
		{2.375, 2, "2.38"},
		{2.5, 1, "2.5"},
		{3, 0, "3"},
		{1e15 + 0.5, 0, "1000000000000001"},
	} {
		if got := display.Fixed(c.x, c.digits); got != c.want {
			t.Errorf("%v with %d digits is %s, want %s", c.x, c.digits, got, c.want)
		}
	}
}
