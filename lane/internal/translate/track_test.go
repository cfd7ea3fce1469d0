package translate_test

import (
	"testing"

	"github.com/penstock/penstock/lane/internal/translate"
)

const window = 1000

// pair is two flows of a session that begins shortly before numbers wrap.
func pair() (a, b *translate.Flow) {
	a = &translate.Flow{First: 1<<32 - 10, FirstAck: 1<<31 - 10, Edge: window}
	b = &translate.Flow{First: 1<<31 - 10, FirstAck: 1<<32 - 10, Edge: window}
	return a, b
}

// segment is one of a flow, by positions.
func segment(f *translate.Flow, at, length, ack int64, flags uint8) translate.Segment {
	return translate.Segment{Sequence: f.First + uint32(at), Ack: f.FirstAck + uint32(ack), Length: uint32(length), Window: window, Flags: flags | translate.ACK}
}

func TestFlows(t *testing.T) {
	a, b := pair()
	a.Note(b, segment(a, 0, 100, 0, 0))
	a.Note(b, segment(a, 0, 100, 0, 0)) // again
	b.Note(a, segment(b, 0, 40, 100, 0))
	a.Note(b, segment(a, 100, 0, 40, translate.FIN))
	if translate.Carried(a, b) != 100 || translate.Carried(b, a) != 40 || translate.Delivered(b, a) != 40 || translate.Delivered(a, b) != 100 {
		t.Errorf("carried %d and %d, delivered %d and %d", translate.Carried(a, b), translate.Carried(b, a), translate.Delivered(a, b), translate.Delivered(b, a))
	}
	b.Note(a, segment(b, 40, 20, 101, 0))
	if translate.Carried(b, a) != 60 || translate.Delivered(b, a) != 40 {
		t.Errorf("carried %d, delivered %d", translate.Carried(b, a), translate.Delivered(b, a))
	}
	if translate.Ended(a, b) {
		t.Error("ended with a FIN of one side alone")
	}
	b.Note(a, segment(b, 60, 0, 101, translate.FIN))
	if translate.Ended(a, b) {
		t.Error("ended before the last FIN is acknowledged")
	}
	a.Note(b, segment(a, 101, 0, 61, 0))
	if !translate.Ended(a, b) || translate.Delivered(a, b) != 100 || translate.Delivered(b, a) != 60 {
		t.Errorf("ended %v, delivered %d and %d", translate.Ended(a, b), translate.Delivered(a, b), translate.Delivered(b, a))
	}
}

// TestCarriedProbe: the byte with which some kernels probe a closed window is carried, but it counts only once it is acknowledged.
func TestCarriedProbe(t *testing.T) {
	a, b := pair()
	a.Note(b, segment(a, 0, window, 0, 0))
	shut := segment(b, 0, 0, window, 0)
	shut.Window = 0
	b.Note(a, shut)
	a.Note(b, segment(a, window, 1, 0, 0))
	if a.Sent != window+1 || translate.Carried(a, b) != window {
		t.Errorf("%d were sent, %d carried, want %d and %d", a.Sent, translate.Carried(a, b), window+1, window)
	}
	shut = segment(b, 0, 0, window+1, 0)
	shut.Window = 0
	if b.Note(a, shut); translate.Carried(a, b) != window+1 || translate.Delivered(a, b) != window+1 {
		t.Errorf("acknowledged: %d carried, %d delivered", translate.Carried(a, b), translate.Delivered(a, b))
	}
}

// TestCarriedEnd: an end of file is no byte, whether it is read before its number or after.
func TestCarriedEnd(t *testing.T) {
	a, b := pair()
	a.Note(b, segment(a, 0, 100, 0, 0))
	a.Fin = 101
	if n := translate.Carried(a, b); n != 100 {
		t.Errorf("%d were carried, want 100", n)
	}
	a.Sent = 101
	if n := translate.Carried(a, b); n != 100 {
		t.Errorf("%d were carried, want 100", n)
	}
}

// TestUnseenEnd: an acknowledgement that its sender has numbered behind its end of file has that carried no more than bytes that were lost with it.
func TestUnseenEnd(t *testing.T) {
	a, b := pair()
	a.Note(b, segment(a, 0, 100, 0, 0))
	a.Note(b, segment(a, 201, 0, 0, 0)) // 100 bytes and the end of file are lost before the lane
	if n := translate.Carried(a, b); n != 100 || a.Sent != 100 {
		t.Errorf("%d carried, %d sent, want 100", n, a.Sent)
	}
	a.Note(b, segment(a, 100, 100, 0, translate.FIN))
	if n := translate.Carried(a, b); n != 200 || a.Sent != 201 || a.Repeats != 0 {
		t.Errorf("%d carried, %d sent, %d repeated, want 200, 201 and 0", n, a.Sent, a.Repeats)
	}
}

// TestStrays: a packet that no socket would take changes nothing, and resets nothing.
func TestStrays(t *testing.T) {
	a, b := pair()
	a.Note(b, segment(a, 0, 100, 0, 0))
	b.Note(a, segment(b, 0, 0, 60, 0))
	bare := func(at, length int64, flags uint8) translate.Segment {
		s := segment(a, at, length, 0, flags)
		s.Flags = flags
		return s
	}
	for name, s := range map[string]translate.Segment{
		"data without ACK":                     bare(100, 10, 0),
		"data without ACK that came before":    bare(70, 10, translate.PSH),
		"data without ACK behind a gap":        bare(150, 10, 0),
		"FIN without ACK":                      bare(100, 0, translate.FIN),
		"FIN without ACK of before":            bare(20, 0, translate.FIN),
		"FIN of before":                        segment(a, 20, 0, 0, translate.FIN),
		"FIN at the last byte acknowledged":    segment(a, 59, 0, 0, translate.FIN),
		"FIN that acknowledges too little":     segment(a, 100, 0, -1<<20-1, translate.FIN),
		"FIN that acknowledges too much":       segment(a, 100, 0, 1, translate.FIN),
		"data from further back than a window": segment(a, -1<<20+59, 10, 0, 0),
		"RST and FIN before":                   segment(a, 20, 0, 0, translate.RST|translate.FIN),
		"beyond the window":                    segment(a, 5000, 10, 0, 0),
		"FIN beyond the window":                segment(a, 5000, 0, 0, translate.FIN),
		"acknowledges what was never sent":     segment(a, 100, 10, 500, 0),
		"RST beyond the window":                segment(a, 5000, 0, 0, translate.RST),
		"RST between, which is challenged":     segment(a, 80, 0, 0, translate.RST),
		"RST before":                           segment(a, 30, 0, 0, translate.RST),
		"SYN":                                  segment(a, 100, 0, 0, translate.SYN),
		"two gigabytes away":                   segment(a, -1<<31+200, 10, 0, 0),
		"acknowledges from two gigabytes of":   segment(a, 100, 10, -1<<31+1, 0),
	} {
		wasA, wasB := *a, *b
		if fate := a.Note(b, s); fate != (translate.Fate{}) || *a != wasA || *b != wasB {
			t.Errorf("%s: %+v, %+v, was %+v", name, fate, *a, wasA)
		}
	}
	for name, at := range map[string]int64{"at what is acknowledged": 60, "after all that was sent": 100} {
		if !a.Note(b, segment(a, at, 0, 0, translate.RST)).Reset {
			t.Errorf("an RST %s resets nothing", name)
		}
	}
}

// TestEndOfFile: only a FIN with ACK at a byte that is not acknowledged is one, the first alone, and an RST counts behind it as before it.
func TestEndOfFile(t *testing.T) {
	for name, c := range map[string]struct {
		at   int64
		fits bool
	}{"at the end": {100, true}, "between": {60, true}, "ahead": {300, true}, "acknowledged": {59, false}} {
		a, b := pair()
		a.Note(b, segment(a, 0, 100, 0, 0))
		b.Note(a, segment(b, 0, 0, 60, 0))
		if fate := a.Note(b, segment(a, c.at, 0, 0, translate.FIN)); fate.Fits != c.fits || (a.Fin != 0) != c.fits {
			t.Errorf("%s: %+v, FIN %d", name, fate, a.Fin)
		}
		was := *a
		if fate := a.Note(b, segment(a, c.at-1, 0, 0, translate.FIN)); fate != (translate.Fate{}) || *a != was {
			t.Errorf("%s, another FIN before it: %+v", name, fate)
		}
		again := a.Note(b, segment(a, c.at, 0, 0, translate.FIN))
		if again.Fits != c.fits || *a != was {
			t.Errorf("%s, again: %+v", name, again)
		}
		for _, at := range []int64{60, int64(a.Sent)} {
			x, y := *a, *b
			if !x.Note(&y, segment(a, at, 0, 0, translate.RST)).Reset {
				t.Errorf("%s: an RST at %d resets nothing", name, at)
			}
		}
		if fate := a.Note(b, segment(a, 500, 0, 0, translate.RST)); fate != (translate.Fate{}) {
			t.Errorf("%s, an RST that is challenged: %+v", name, fate)
		}
		if fate := a.Note(b, segment(a, 500, 1, 0, translate.RST)); fate.Beyond != c.fits {
			t.Errorf("%s, an RST with data behind: %+v", name, fate)
		}
	}
}

// TestResent: what came again counts as that only with the first byte that the other endpoint has not acknowledged.
func TestResent(t *testing.T) {
	a, b := pair()
	a.Note(b, segment(a, 0, 100, 0, 0))
	b.Note(a, segment(b, 0, 0, 40, 0))
	a.Note(b, segment(a, 200, 100, 0, 0)) // and leaves a hole
	for _, c := range []struct {
		at, length int64
		want       uint32
	}{{200, 100, 0}, {100, 10, 0}, {41, 10, 0}, {0, 40, 0}, {39, 1, 0}, {40, 60, 1}, {40, 1, 1}, {0, 41, 1}, {0, 100, 1}, {290, 50, 0}} {
		x, y := *a, *b
		if x.Note(&y, segment(a, c.at, c.length, 0, 0)); x.Resent != c.want {
			t.Errorf("%d bytes at %d: %d, want %d", c.length, c.at, x.Resent, c.want)
		}
	}
}

// TestWraps: positions go on when numbers wrap, more than once.
func TestWraps(t *testing.T) {
	a, b := pair()
	const step = 1 << 29
	a.Edge, b.Edge = step, step
	for i := int64(0); i < 40; i++ {
		s := segment(a, i*step, step, 0, 0)
		a.Note(b, s)
		r := segment(b, 0, 0, (i+1)*step, 0)
		r.Window = step
		b.Note(a, r)
	}
	if translate.Delivered(a, b) != 40*step || a.Sent != 40*step {
		t.Errorf("delivered %d, sent %d, want %d", translate.Delivered(a, b), a.Sent, 40*step)
	}
}

// FuzzFlows: no course of segments has a flow fall, or an acknowledgement of more than was sent.
func FuzzFlows(f *testing.F) {
	f.Add([]byte{0, 100, 0, 0, 1, 0, 100, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, script []byte) {
		a, b := pair()
		for ; len(script) >= 4; script = script[4:] {
			x, y := a, b
			if script[3]&1 != 0 {
				x, y = b, a
			}
			was := *x
			s := segment(x, int64(x.Sent)+int64(int8(script[0])), int64(script[1]), int64(y.Sent)+int64(int8(script[2])), script[3]>>1)
			x.Note(y, s)
			if x.Sent < was.Sent || x.Acked < was.Acked || x.Edge < was.Edge || (was.Fin != 0 && x.Fin != was.Fin) {
				t.Fatalf("%+v after %+v by %+v", *x, was, s)
			}
			if x.Acked > y.Sent || x.Sent > y.Edge+1 {
				t.Fatalf("%+v and %+v", *x, *y)
			}
		}
	})
}
