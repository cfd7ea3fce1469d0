package compare

import (
	"encoding/binary"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// frame returns a frame with its length before it.
func frame(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// TestLeads: whichever side is ahead, by however many bytes and answers, and however often that changes,
// the answers that differ are found and no others.
func TestLeads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sides [2][]byte
		var equal, different uint64
		for range rapid.IntRange(1, 12).Draw(t, "answers") {
			b := make([]byte, rapid.SampledFrom([]int{0, 1, 300, 5000, 39_000, 41_000, 90_000}).Draw(t, "length"))
			for i := range b {
				b[i] = byte(i) ^ byte(i>>8)
			}
			other := slices.Clone(b)
			switch change := rapid.IntRange(0, 5).Draw(t, "change"); {
			case change == 0 && len(b) > 0:
				other[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= 1
			case change == 1 && len(b) > 0:
				other = other[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]
			case change == 2:
				other = append(other, 0)
			default:
				equal++
				different--
			}
			different++
			sides[primary] = append(sides[primary], frame(b)...)
			sides[shadow] = append(sides[shadow], frame(other)...)
		}
		s, r, b := session(t, Config{Framing: LengthPrefixed, Length: Length{Width: 4}}, SessionBytes)
		for len(sides[primary])+len(sides[shadow]) > 0 {
			side := rapid.IntRange(0, 1).Draw(t, "side")
			if len(sides[side]) == 0 {
				side = 1 - side
			}
			n := min(rapid.SampledFrom([]int{1, 7, 1000, 16 << 10, 64 << 10}).Draw(t, "piece"), len(sides[side]))
			s.answer(side, sides[side][:n], at(0))
			sides[side] = sides[side][n:]
			holds(t, s)
		}
		if s.purse.lead != cap(s.spare) || s.main.oldest != nil {
			t.Fatalf("%d bytes and %v are left", s.purse.lead, s.main.oldest)
		}
		s.End(true, at(0))
		if got := r.Snapshot(); got.Equal != equal || got.Different != different || b.Used() != 0 {
			t.Fatalf("%d equal, %d different, want %d and %d; %d bytes held", got.Equal, got.Different, equal, different, b.Used())
		}
	})
}

// TestManySmallAnswersAhead: hundreds of small answers are compared when the other side comes, and each that differs, or has
// another length, is found.
func TestManySmallAnswersAhead(t *testing.T) {
	const n = 450
	for _, first := range []int{primary, shadow} {
		s, r, b := session(t, Config{Framing: Lines}, SessionBytes)
		differs := map[int]string{1: "abx\n", 70: "xbc\n", 200: "ab\n", 202: "abcd\n", 449: "\n"}
		ends := func(i int) time.Duration {
			return time.Duration(i)*time.Millisecond + time.Duration(i/100)*10*time.Second
		}
		for i := range n {
			s.answer(first, []byte("abc\n"), at(ends(i)))
			holds(t, s)
		}
		if s.Stopped() != Going {
			t.Fatalf("%v with %d bytes", s.Stopped(), s.purse.held)
		}
		for i := range n {
			text := differs[i]
			if text == "" {
				text = "abc\n"
			}
			s.answer(1-first, []byte(text), at(ends(i)+5*time.Microsecond))
			holds(t, s)
		}
		s.End(true, at(0))
		got := r.Snapshot()
		if got.Different != uint64(len(differs)) || got.Equal != n-uint64(len(differs)) || got.Unsettled != 0 || b.Used() != 0 {
			t.Errorf("%d equal, %d different, %d unsettled; %d bytes held", got.Equal, got.Different, got.Unsettled, b.Used())
		}
		if lag := got.Lag.P50.Abs(); lag < 4*time.Microsecond || lag > 6*time.Microsecond || got.Lag.Slower+got.Lag.Faster != n {
			t.Errorf("%+v", got.Lag)
		}
	}
}

// TestReportIsShared: loops count in one report and take from one budget, while it is read.
func TestReportIsShared(t *testing.T) {
	plan, _ := NewPlan(Config{Framing: GRPC, Mask: []Mask{{Pattern: "[0-9]{3}"}}, Examples: 3})
	r, b := NewReport(), NewBudget(TotalBytes)
	const loops, sessions = 4, 100
	var answers [2][]byte
	for i, text := range []string{"abc", "abd"} {
		p := newPeer(t)
		p.head(1, false, ":status", "200", "x", text)
		p.head(1, true, "grpc-status", "0")
		answers[i] = p.out.Bytes()
	}
	var requests [20][]byte
	for i := range requests {
		requests[i] = calling(t, "/a.B/"+string(rune('A'+i)))
	}
	var group sync.WaitGroup
	for i := range loops {
		group.Go(func() {
			for j := range sessions {
				s := plan.NewSession(b, r)
				s.Request(requests[j%20], at(0))
				s.Primary(answers[0], at(0))
				s.Shadow(answers[i%2], at(0))
				s.End(true, at(0))
				r.Snapshot()
			}
		})
	}
	group.Wait()
	got := r.Snapshot()
	if got.Equal != loops/2*sessions || got.Different != loops/2*sessions || len(got.Names) != 20 || len(got.Examples) != 20*3 || b.Used() != 0 {
		t.Errorf("%d equal, %d different, %d names, %d examples, %d bytes held", got.Equal, got.Different, len(got.Names), len(got.Examples), b.Used())
	}
}
