package traffic

import (
	"strings"
	"testing"
)

// TestPreamble: a preamble is parsed whole, in part, and a byte at a time.
func TestPreamble(t *testing.T) {
	header := proxySignature + "\x21\x11\x00\x0c" + strings.Repeat("a", 12)
	hello := "\x16\x03\x01\x00\x04abcd"
	for _, test := range []struct{ before, request string }{
		{"", "bulk 7\n"}, {"", "x"}, {header, "bulk 7\n"}, {hello, "once 9\n"}, {header + hello, "\x16"}, {header + hello, "\rx"},
	} {
		all := []byte(test.before + test.request)
		for i := 1; i < len(test.before); i++ {
			if n, whole := Preamble(all[:i]); whole || n > i {
				t.Errorf("of %d bytes of %q: %d, %v", i, test.before, n, whole)
			}
		}
		if n, whole := Preamble(all); !whole || n != len(test.before) {
			t.Errorf("%q: %d, %v, want %d", all, n, whole, len(test.before))
		}
	}
}

func TestPlain(t *testing.T) {
	for text, want := range map[string]bool{"x": true, "\r": false, "\x16": false, "b": false, "bulk 1\n": false} {
		if got := Plain([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
