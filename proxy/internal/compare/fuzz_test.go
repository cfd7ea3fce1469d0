package compare

import (
	"testing"
)

// fuzz plays any bytes in pieces of two sizes: nothing panics, memory is bounded and comes back, and
// pieces change no result.
func fuzz(f *testing.F, c Config) {
	f.Fuzz(func(t *testing.T, request, primary, shadow []byte, size uint8) {
		w := wire{request: request, primary: primary, shadow: shadow}
		a := play(t, c, w, whole, true)
		b := play(t, c, w, func(n int) int { return min(n, int(size)%64+1) }, true)
		stopped := a.Summed + b.Summed
		for reason := range a.Stopped { // where one side stops, it depends on the pieces how far the other was
			stopped += a.Stopped[reason] + b.Stopped[reason]
		}
		same := a.Equal == b.Equal && a.Different == b.Different && a.Unsettled == b.Unsettled
		if stopped == 0 && !same {
			t.Fatalf("whole: %+v\nin pieces: %+v", a, b)
		}
		if same := play(t, c, wire{request: request, primary: primary, shadow: primary}, whole, true); same.Different != 0 {
			t.Fatalf("equal sides differ: %+v", same)
		}
	})
}

func FuzzBytes(f *testing.F) {
	f.Add([]byte("ask"), []byte("hello"), []byte("hallo"), uint8(3))
	fuzz(f, Config{Framing: Bytes, Mask: []Mask{{Pattern: "[0-9]+"}}})
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("ask"), []byte("hello\nyou\n"), []byte("hello\nme\n"), uint8(3))
	fuzz(f, Config{Framing: Lines, Mask: []Mask{{Pattern: "[0-9]{2}"}}})
}

func FuzzLengths(f *testing.F) {
	f.Add([]byte("ask"), []byte("x\x00\x03abcx\x00\x00"), []byte("x\x00\x03abdx\x00\x01z"), uint8(3))
	fuzz(f, Config{Framing: LengthPrefixed, Length: Length{Offset: 1, Width: 2}})
}
