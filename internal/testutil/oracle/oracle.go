// Package oracle masks a whole text by regular expressions, in the simplest way, as examples/filters/mask must
// mask it in a stream.
package oracle

import (
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// All is a configuration with all masks, and with patterns of each form.
const All = "card token email pattern=ID-[0-9]{4} pattern=a(b|cd){1,3}e? pattern=x[^x\\n]{0,9}x pattern=(?i)secret"

// Split is a text with a match for each of them, but none at its end.
const Split = "card 5500-0055-5555-5559, Bearer abcdefgh12345678 to joe@example.org; eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.sig ID-0042 secret 4111111111111111 end@x.y"

// Mask masks a text by the words of a configuration.
func Mask(config, text string) string {
	b := []byte(text)
	for _, k := range []struct {
		name string
		mask func([]byte) []byte
	}{{"token", maskTokens}, {"card", maskCards}, {"email", maskEmails}} {
		if slices.Contains(strings.Fields(config), k.name) {
			b = k.mask(b)
		}
	}
	for word := range strings.FieldsSeq(config) {
		if pattern, ok := strings.CutPrefix(word, "pattern="); ok {
			b = maskPattern(b, pattern)
		}
	}
	return string(b)
}

// pieces are the parts of random texts.
var pieces = []string{
	" ", "-", ".", "@", "_", "\n", "*", "a", "Z", "4", "41", "4111", "1111", "4111111111111111", "378282246310005", "5500 0055 5555 5559", "0", "9", "13", "abc", "x", "é",
	"Bearer ", "bearer", "eyJ", "eyJhbGciOiJIUzI1NiJ9", ".eyJzdWIiOiIx", "sk-", "sk_live_", "ghp_", "github_", "pat_", "AKIA", "IOSFODNN7EXAMPLE", "xoxb-", "SG.", "abcdefghijklmnop", "joe", "joe@", "example", ".com", ".c1", "+",
	"ID-", "12", "345", "b", "cd", "e", "sec", "ReT", "=", "/",
}

// Text returns a random text with pieces that are masked.
func Text(r *rand.Rand) string {
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

func fill(b []byte, from, to int) {
	for i := from; i < to; i++ {
		b[i] = '*'
	}
}

var (
	groups = regexp.MustCompile(`^[0-9]+(?:[ -][0-9]+)*`)
	word   = regexp.MustCompile(`[A-Za-z0-9]`)
)

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// maskCards tries all digits of all chains as beginnings.
func maskCards(b []byte) []byte {
	out := append([]byte(nil), b...)
	for i := range b {
		if i > 0 && isDigit(b[i-1]) || b[i] < '2' || b[i] > '9' {
			continue
		}
		chain := groups.Find(b[i:])
		var digits []int
		for j, c := range chain {
			if c < '0' || c > '9' {
				continue
			}
			digits = append(digits, i+j)
			ends := i+j+1 == len(b) || !isDigit(b[i+j+1])
			if n := len(digits); ends && n >= 13 && n <= 19 && luhn(b, digits) {
				for _, at := range digits[:n-4] {
					out[at] = '*'
				}
			}
		}
	}
	return out
}

func luhn(b []byte, digits []int) bool {
	sum := 0
	for i, at := range digits {
		v := int(b[at] - '0')
		if (len(digits)-1-i)%2 == 1 {
			v *= 2
		}
		sum += v/10 + v%10
	}
	return sum%10 == 0
}

var domain = regexp.MustCompile(`^(?:[A-Za-z0-9-]+\.)+?[A-Za-z]{2}`)

func maskEmails(b []byte) []byte {
	out := append([]byte(nil), b...)
	begin := 0 // where a local part may begin
	for i, c := range b {
		if c != '@' || i < begin {
			continue
		}
		local := len(regexp.MustCompile(`[A-Za-z0-9._%+-]{0,64}$`).Find(b[begin:i]))
		n := len(domain.Find(b[i+1:]))
		if local == 0 || n == 0 || n > 253 {
			continue
		}
		fill(out, i-local, i)
		begin = i + 1 + len(regexp.MustCompile(`^[A-Za-z0-9.-]*`).Find(b[i+1:]))
		for j := i + 1; j < begin; j++ {
			if word.Match(b[j : j+1]) {
				out[j] = '*'
			}
		}
	}
	return out
}

var tokenForms = []*regexp.Regexp{
	regexp.MustCompile(`^((?i:bearer) )[A-Za-z0-9._~+/=-]{8,}`),
	regexp.MustCompile(`^(eyJ)[A-Za-z0-9_-]{6,500}\.[A-Za-z0-9_-]{4}[A-Za-z0-9_.-]*`),
	regexp.MustCompile(`^(sk-)[A-Za-z0-9_-]{20}[A-Za-z0-9_.-]*`),
	regexp.MustCompile(`^([sr]k_(?:live|test)_|whsec_|pypi-)[A-Za-z0-9_-]{16}[A-Za-z0-9_.-]*`),
	regexp.MustCompile(`^(gh[pousr]_|hf_)[A-Za-z0-9_-]{30}[A-Za-z0-9_.-]*`),
	regexp.MustCompile(`^(github_pat_)[A-Za-z0-9_-]{22}[A-Za-z0-9_.-]*`),
	regexp.MustCompile(`^(glpat-|SG\.)[A-Za-z0-9_.-]{20,}`),
	regexp.MustCompile(`^(hvs\.)[A-Za-z0-9_-]{20}[A-Za-z0-9_.-]*`),
	regexp.MustCompile(`^(xox[abprs]-|xapp-)[A-Za-z0-9_-]{10}[A-Za-z0-9_.-]*`),
	regexp.MustCompile(`^(A[KS]IA)[A-Z0-9]{16}[A-Za-z0-9_.-]*`),
	regexp.MustCompile(`^(AIza)[A-Za-z0-9_-]{35}[A-Za-z0-9_.-]*`),
	regexp.MustCompile(`^(npm_)[A-Za-z0-9_-]{36}[A-Za-z0-9_.-]*`),
	regexp.MustCompile(`^(dop_v1_)[A-Za-z0-9_-]{32}[A-Za-z0-9_.-]*`),
}

var bearerWord = regexp.MustCompile(`^(?i:bearer) [A-Za-z0-9._~+/=-]*`)

func maskTokens(b []byte) []byte {
	out := append([]byte(nil), b...)
	inWord := regexp.MustCompile(`^[A-Za-z0-9_.-]`)
	for i := 0; i < len(b); {
		if !inWord.Match(b[i:]) {
			i++
			continue
		}
		next := i + len(regexp.MustCompile(`^[A-Za-z0-9_.-]+`).Find(b[i:]))
		if m := bearerWord.Find(b[i:]); m != nil && len(m) > len("bearer ") { // it does not begin in the word behind it
			next = i + len(m)
		}
		for _, form := range tokenForms {
			if m := form.FindSubmatchIndex(b[i:]); m != nil {
				fill(out, i+m[3], i+m[1])
				next = i + m[1]
			}
		}
		i = next
	}
	return out
}

// maskPattern masks all matches at all places. It takes each byte as a rune.
func maskPattern(b []byte, pattern string) []byte {
	out := append([]byte(nil), b...)
	var text strings.Builder
	at := make([]int, 0, len(b)+1)
	for _, c := range b {
		at = append(at, text.Len())
		text.WriteRune(rune(c))
	}
	at = append(at, text.Len())
	whole := text.String()
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		panic(err)
	}
	re := regexp.MustCompile(`^(?:` + parsed.String() + `)`) // the pattern may end within \Q
	re.Longest()
	for i := range b {
		if m := re.FindString(whole[at[i]:]); m != "" {
			fill(out, i, i+len([]rune(m)))
		}
	}
	return out
}
