package traffic_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/penstock/penstock/bench/traffic"
	"pgregory.net/rapid"
)

func content(seed uint32, n int) []byte {
	s := traffic.NewStream(seed)
	var b []byte
	for len(b) < n {
		b = append(b, s.Next(n-len(b))...)
	}
	return b
}

func TestCheckTakesWhatNextGaveInAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint32().Draw(t, "seed")
		b := content(seed, rapid.IntRange(0, 3*traffic.MaxChunk).Draw(t, "length"))
		s := traffic.NewStream(seed)
		for len(b) > 0 {
			n := rapid.IntRange(1, len(b)).Draw(t, "piece")
			if !s.Check(b[:n]) {
				t.Fatal("refused")
			}
			b = b[n:]
		}
	})
}

func TestCheckSeesOneWrongByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := content(7, rapid.IntRange(1, 2*traffic.MaxChunk).Draw(t, "length"))
		b[rapid.IntRange(0, len(b)-1).Draw(t, "where")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if traffic.NewStream(7).Check(b) {
			t.Fatal("the change is not seen")
		}
	})
}

// Pages, pipe slots, buffers and segments are the units that are lost or duplicated.
func TestCheckSeesWhatIsOutOfPlace(t *testing.T) {
	const before, after = 1000, 64
	for _, size := range []int{1, 1448, 4096, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			b := content(3, before+size+after)
			lost := append(bytes.Clone(b[:before]), b[before+size:]...)
			if traffic.NewStream(3).Check(lost) {
				t.Error("the loss is not seen")
			}
			doubled := append(bytes.Clone(b[:before+size]), b[before:]...)
			if traffic.NewStream(3).Check(doubled) {
				t.Error("the repetition is not seen")
			}
		})
	}
}

func TestBackUndoesNext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint32().Draw(t, "seed")
		s := traffic.NewStream(seed)
		n := len(s.Next(rapid.IntRange(1, traffic.MaxChunk).Draw(t, "next")))
		back := rapid.IntRange(0, n).Draw(t, "back")
		s.Back(back)
		if want := content(seed, n+10)[n-back:]; !s.Check(want) {
			t.Fatal("the content does not continue at its offset")
		}
	})
}

func TestClassify(t *testing.T) {
	for _, test := range []struct {
		in   string
		want traffic.Kind
	}{
		{"", traffic.KindUnknown},
		{"b", traffic.KindUnknown},
		{"bulk", traffic.KindUnknown},
		{"bulk ", traffic.KindBulk},
		{"bulk 12\n", traffic.KindBulk},
		{"bulky", traffic.KindEcho},
		{"o", traffic.KindUnknown},
		{"once 64\n", traffic.KindOnce},
		{"GET / HTTP/1.1\r\n", traffic.KindEcho},
		{"hello\n", traffic.KindEcho},
		{"\n", traffic.KindEcho},
	} {
		if got := traffic.Classify([]byte(test.in)); got != test.want {
			t.Errorf("%q: got %d, want %d", test.in, got, test.want)
		}
	}
}
