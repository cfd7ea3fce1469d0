package text_test

import (
	"errors"
	"testing"

	"github.com/penstock/penstock/examples/filters/replace/text"
	"github.com/penstock/penstock/internal/testutil/must"
)

// pieces rewrites a stream in pieces, each as long as the bytes of cuts say by turns.
func pieces(p *text.Pairs, stream string, cuts []byte) string {
	var out, rest []byte
	for i := 0; stream != ""; i++ {
		n := len(stream)
		if len(cuts) > 0 {
			n = min(n, 1+int(cuts[i%len(cuts)]))
		}
		b, held := p.Replace(nil, append(rest, stream[:n]...), false)
		out, rest = append(out, b[:len(b)-held]...), b[len(b)-held:]
		stream = stream[n:]
	}
	b, _ := p.Replace(nil, rest, true)
	return string(append(out, b...))
}

// TestReplace: texts are replaced in the order of the pairs, and the last bytes are held back only if one may begin there.
func TestReplace(t *testing.T) {
	p := must.Get(text.Parse("abc=1\r\nab=22\n\nbb=\n"))(t)
	for in, want := range map[string]string{"": "", "abcab": "122", "xabbbx": "x22x", "aab": "a22", "bbb": "b"} {
		if got := pieces(p, in, nil); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]int{"x": 0, "xab": 2, "xb": 1, "abc": 0} {
		if _, held := p.Replace(nil, []byte(in), false); held != want {
			t.Errorf("%q: %d are held back, want %d", in, held, want)
		}
	}
	for _, config := range []string{"", "\n", "a", "=b"} {
		if _, err := text.Parse(config); !errors.Is(err, text.ErrNone) {
			t.Errorf("%q: %v", config, err)
		}
	}
}
