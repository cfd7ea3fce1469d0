package vecio

import (
	"slices"
	"testing"
)

// TestHeldPiecesComeBackInOrder: a piece waits for its last call and for all before it.
// The numbers continue after 1<<32 - 1.
func TestHeldPiecesComeBackInOrder(t *testing.T) {
	const start = 1<<32 - 2
	var back []byte
	r := ReleaseFunc(func(p []byte) { back = append(back, p[0]) })
	w := &Writer{zero: &zeroCopy{sends: sends{next: start, done: start}, stats: ZeroCopyStats{State: ZeroCopyOn}}}
	z := w.zero
	// Four pieces of 10 bytes by five calls: the second one was taken in two parts, and
	// the third and half of the fourth by one.
	for i := range byte(4) {
		z.zones.push(zone{start: 10 * int64(i), end: 10*int64(i) + 10})
	}
	z.took(0, 10, true)  // 1<<32 - 2
	z.took(10, 4, true)  // 1<<32 - 1
	z.took(14, 6, true)  // 0
	z.took(20, 15, true) // 1
	z.took(35, 5, true)  // 2
	for i := range byte(4) {
		if !z.keep(owner{end: 10*int64(i) + 10, piece: slices.Repeat([]byte{i}, 10), r: r}) {
			t.Fatalf("piece %d is not held", i)
		}
	}
	for _, step := range []struct {
		lo, hi uint32
		copied bool
		want   []byte
	}{
		{1<<32 - 1, 0, false, nil},
		{start, start, false, []byte{0, 1}},
		{2, 2, true, []byte{0, 1}},
		{1, 1, true, []byte{0, 1, 2, 3}},
	} {
		z.noticed(step.lo, step.hi, step.copied)
		w.giveBack()
		if !slices.Equal(back, step.want) {
			t.Errorf("after %d to %d: %v came back, want %v", step.lo, step.hi, back, step.want)
		}
	}
	want := ZeroCopyStats{State: ZeroCopyCopied, Calls: 5, Bytes: 40, Done: 3, Copied: 2, Notices: 4}
	if z.stats != want || w.Held() != 0 {
		t.Errorf("%+v, %d held; want %+v", z.stats, w.Held(), want)
	}
}

// TestNothingIsKeptThatWasNotSentSo: pieces that were copied after all, and owners
// that are no such pieces.
func TestNothingIsKeptThatWasNotSentSo(t *testing.T) {
	z := &zeroCopy{stats: ZeroCopyStats{State: ZeroCopyOn}}
	piece := make([]byte, 10)
	z.zones.push(zone{start: 5, end: 15})
	z.zones.push(zone{start: 15, end: 25})
	z.took(0, 5, false)
	z.took(5, 10, false)
	z.took(15, 10, true)
	for _, o := range []struct {
		owner
		want bool
	}{
		{owner{end: 5, piece: piece[:5]}, false},
		{owner{end: 15, piece: piece[:0]}, false}, // an empty one that ends there
		{owner{end: 15, r: new(buffer)}, false},
		{owner{end: 15, piece: piece}, false},
		{owner{end: 25, piece: piece}, true},
		{owner{end: 25, piece: piece}, false},
	} {
		if got := z.keep(o.owner); got != o.want {
			t.Errorf("up to %d, %d bytes: %v, want %v", o.end, len(o.piece), got, o.want)
		}
	}
}

// TestCut: which pieces go together, and which of them with MSG_ZEROCOPY.
func TestCut(t *testing.T) {
	z := &zeroCopy{stats: ZeroCopyStats{State: ZeroCopyOn}}
	spans := [][]byte{make([]byte, 3), make([]byte, 2), make([]byte, 10), make([]byte, 10), make([]byte, 1), make([]byte, 10)}
	for _, at := range []int64{5, 15, 26} {
		z.zones.push(zone{start: at, end: at + 10})
	}
	for at, n := int64(0), 0; ; {
		want := map[int64]struct {
			n    int
			zero bool
		}{0: {2, false}, 5: {2, true}, 25: {1, false}, 26: {1, true}}[at]
		got, zero := z.cut(spans[n:], at)
		if got != want.n || zero != want.zero {
			t.Fatalf("at %d: %d, %v; want %+v", at, got, zero, want)
		}
		for range got {
			at, n = at+int64(len(spans[n])), n+1
		}
		if n == len(spans) {
			break
		}
	}
	half := [][]byte{make([]byte, 4), make([]byte, 10), make([]byte, 1)}
	if n, zero := z.cut(half, 11); n != 2 || !zero {
		t.Errorf("from within a piece: %d, %v; want it and the next", n, zero)
	}
	z.exhausted()
	if n, zero := z.cut(half, 11); n != 2 || zero {
		t.Errorf("after ENOBUFS: %d, %v; want the same without the flag", n, zero)
	}
	z.stats.State = ZeroCopyCopied
	if n, zero := z.cut(half, 11); n != 3 || zero {
		t.Errorf("for good: %d, %v; want all without the flag", n, zero)
	}
}

// TestENOBUFSIsNotForEver: it is tried again after a notice, or after something was
// sent if there cannot be one.
func TestENOBUFSIsNotForEver(t *testing.T) {
	z := &zeroCopy{stats: ZeroCopyStats{State: ZeroCopyOn}}
	z.exhausted()
	z.took(0, 10, false)
	if z.dry {
		t.Error("none outstanding, something sent: still dry")
	}
	z.took(10, 10, true)
	z.exhausted()
	z.took(20, 10, false)
	if !z.dry {
		t.Error("one outstanding: tried again without a notice")
	}
	z.noticed(0, 0, false)
	if z.dry || z.stats.NoBuffer != 2 {
		t.Errorf("after a notice: dry %v, %+v", z.dry, z.stats)
	}
}

func TestZeroCopyStates(t *testing.T) {
	if a, b := ZeroCopyLost.String(), ZeroCopyState(9).String(); a != "lost count" || b != "ZeroCopyState(9)" {
		t.Error(a, b)
	}
}
