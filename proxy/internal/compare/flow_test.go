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
		plan, _ := NewPlan(Config{Framing: LengthPrefixed, Width: 4})
		r, b := NewReport(), NewBudget(SessionBytes)
		s := plan.NewSession(b, r)
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
		if s.purse.lead != 0 || s.main.answers.n != 0 {
			t.Fatalf("%d bytes and %d answers are left", s.purse.lead, s.main.answers.n)
		}
		s.End(true, at(0))
		if got := r.Snapshot(); got.Equal != equal || got.Different != different || b.Used() != 0 {
			t.Fatalf("%d equal, %d different, want %d and %d; %d bytes held", got.Equal, got.Different, equal, different, b.Used())
		}
	})
}

// TestManySmallAnswersAhead: thousands of small answers are compared when the other side comes, and each that differs, has
// another length or other parts is found.
func TestManySmallAnswersAhead(t *testing.T) {
	const n = 2500
	for _, first := range []int{primary, shadow} {
		plan, _ := NewPlan(Config{Framing: Resp})
		r, b := NewReport(), NewBudget(SessionBytes)
		s := plan.NewSession(b, r)
		differs := map[int]string{1: "$3\r\nabx\r\n", 70: "$3\r\nxbc\r\n", 2000: "$2\r\nab\r\n", 2001: "*2\r\n$1\r\na\r\n$2\r\nbc\r\n", 2002: "$4\r\nabcd\r\n", 2499: "$0\r\n\r\n"}
		ends := func(i int) time.Duration {
			return time.Duration(i)*time.Millisecond + time.Duration(i/500)*10*time.Second
		}
		for i := range n {
			s.Request(command(false, "GET", "a"), at(ends(i)))
			s.answer(first, []byte("$3\r\nabc\r\n"), at(ends(i)))
			holds(t, s)
		}
		if s.Full() {
			t.Fatalf("%v with %d bytes", s.Stopped(), s.purse.held)
		}
		for i := range n {
			text := differs[i]
			if text == "" {
				text = "$3\r\nabc\r\n"
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
	plan, _ := NewPlan(Config{Framing: Resp, Mask: []Mask{{Pattern: "[0-9]{3}"}}, Redact: new(bool)})
	r, b := NewReport(), NewBudget(TotalBytes)
	const loops, sessions = 4, 100
	var group sync.WaitGroup
	for i := range loops {
		group.Go(func() {
			for j := range sessions {
				s := plan.NewSession(b, r)
				s.Request(command(false, "GET"+string(rune('A'+j%20))), at(0))
				s.Primary([]byte("$3\r\nabc\r\n"), at(0))
				s.Shadow([]byte([]string{"$3\r\nabc\r\n", "$3\r\nabd\r\n"}[i%2]), at(0))
				s.End(true, at(0))
				r.Snapshot()
			}
		})
	}
	group.Wait()
	got := r.Snapshot()
	if got.Equal != loops/2*sessions || got.Different != loops/2*sessions || len(got.Names) != 20 || len(got.Examples) != 20*ExamplesByName || b.Used() != 0 {
		t.Errorf("%d equal, %d different, %d names, %d examples, %d bytes held", got.Equal, got.Different, len(got.Names), len(got.Examples), b.Used())
	}
}
