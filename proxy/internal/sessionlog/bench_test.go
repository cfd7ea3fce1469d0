package sessionlog_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/evring"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/sessionlog"
)

// A way is one by which events come from a loop to the writer. put hands one over, and reports
// whether there was a place; take waits until so many have come.
type way struct {
	name string
	put  func(event []byte) bool
	take func(n int)
}

// event is an event by value, in a channel.
type event struct {
	n int
	b [sessionlog.MaxEvent]byte
}

// ways are those that are compared.
func ways(b *testing.B) []way {
	ring, err := evring.New(&evring.Config{Slots: sessionlog.Slots, SlotSize: sessionlog.MaxEvent + 8, Producers: evring.Single})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ring.Close() })
	values, pointers := make(chan event, sessionlog.Slots), make(chan *event, sessionlog.Slots)
	return []way{
		{"ring", func(e []byte) bool { return ring.Push(e) == nil }, func(n int) {
			for n > 0 {
				got, _ := ring.Drain(0, func([]byte) {})
				if n -= got; got == 0 {
					time.Sleep(100 * time.Microsecond)
				}
			}
		}},
		{"channel of values", func(e []byte) bool {
			v := event{n: len(e)}
			copy(v.b[:], e)
			select {
			case values <- v:
				return true
			default:
				return false
			}
		}, func(n int) {
			for range n {
				<-values
			}
		}},
		{"channel of pointers", func(e []byte) bool {
			v := &event{n: len(e)}
			copy(v.b[:], e)
			select {
			case pointers <- v:
				return true
			default:
				return false
			}
		}, func(n int) {
			for range n {
				<-pointers
			}
		}},
	}
}

// BenchmarkHandOver measures the time that a loop takes to hand over an event of a usual size: with the
// consumer on another goroutine at the same time, and in turns on one goroutine. Ways take turns, and each
// round gives a ratio to the ring.
func BenchmarkHandOver(b *testing.B) {
	r := whole()
	e := sessionlog.AppendEvent(nil, sessionlog.End, r.Ended, &r)
	for _, beside := range []bool{true, false} {
		b.Run(map[bool]string{true: "beside", false: "turns"}[beside], func(b *testing.B) {
			all := ways(b)
			times := make([][]float64, len(all))
			for b.Loop() {
				for i, w := range all {
					times[i] = append(times[i], w.measure(e, beside))
				}
			}
			for i, w := range all {
				ratios := make([]float64, len(times[i]))
				for j := range ratios {
					ratios[j] = times[i][j] / times[0][j]
				}
				slices.Sort(ratios)
				slices.Sort(times[i])
				n := len(ratios)
				b.Logf("%-20s %4.0f ns, %.2f (%.2f–%.2f) of the ring's", w.name, times[i][n/2], ratios[n/2], ratios[n/10], ratios[n*9/10])
			}
			b.Logf("events of %d bytes", len(e))
		})
	}
}

// measure returns nanoseconds for each event that was handed over.
func (w way) measure(e []byte, beside bool) float64 {
	const n, slice = 8192, 256
	if beside {
		done := make(chan struct{})
		go func() { w.take(n); close(done) }()
		var took time.Duration
		for put := 0; put < n; {
			began, before := time.Now(), put
			for range slice {
				if !w.put(e) {
					break
				}
				put++
			}
			took += time.Since(began)
			if put == before || put%slice != 0 { // full
				time.Sleep(50 * time.Microsecond)
			}
		}
		<-done
		return float64(took) / n
	}
	var took time.Duration
	for range n / slice {
		began := time.Now()
		for range slice {
			w.put(e)
		}
		took += time.Since(began)
		w.take(slice)
	}
	return float64(took) / n
}

// BenchmarkAdd measures the part of a loop in a line: the event is made, and pushed into the ring.
func BenchmarkAdd(b *testing.B) {
	for _, drain := range []string{"/dev/null", filepath.Join(b.TempDir(), "s.log")} {
		b.Run(filepath.Base(drain), func(b *testing.B) {
			at, err := sessionlog.ParseDestination(drain)
			if err != nil {
				b.Fatal(err)
			}
			start := time.Now()
			l, err := sessionlog.New(&sessionlog.Config{Loops: 1, Now: func() int64 { return int64(time.Since(start)) + 1 }})
			if err != nil {
				b.Fatal(err)
			}
			s := &sessionlog.Settings{Destination: at, Format: sessionlog.FormatJSON, End: true, Share: 1}
			if err := s.Open(); err != nil {
				b.Fatal(err)
			}
			l.Set(s)
			r, took := whole(), time.Duration(0)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				began := time.Now()
				for range 256 {
					l.Add(0, sessionlog.End, &r)
				}
				took += time.Since(began)
				n += 256
				for c := l.Counts(); c.Lines+c.Lost() < int64(n); c = l.Counts() {
					time.Sleep(time.Millisecond)
				}
			}
			b.ReportMetric(float64(took)/float64(n), "ns/add")
			b.ReportMetric(float64(l.Counts().Lost()), "lost")
			if err := l.Close(); err != nil {
				b.Error(err)
			}
		})
	}
}

// BenchmarkFormat measures the making of a line, on the writer's goroutine.
func BenchmarkFormat(b *testing.B) {
	r := whole()
	raw := sessionlog.AppendEvent(nil, sessionlog.End, r.Ended, &r)
	for _, format := range []string{sessionlog.FormatJSON, sessionlog.FormatHAProxy, sessionlog.FormatTemplate} {
		b.Run(format, func(b *testing.B) {
			line, err := sessionlog.Formatter(format, "{time} {client} {upstream}/{endpoint} {reason}")
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			var text []byte
			for b.Loop() {
				e, _ := sessionlog.Read(raw)
				text = line(text[:0], &e)
			}
		})
	}
}

// BenchmarkRecord measures the cost of the record itself, beside its line: begun, kept, and filled in
// again.
func BenchmarkRecord(b *testing.B) {
	ids, from := record.NewIDs(), whole()
	r, k, rest := new(record.Record), new(record.Kept), new(record.Rest)
	n := uint64(0)
	for b.Loop() {
		n++
		r.Begin(ids.Of(n), "web", 0, 5)
		*r = from
		k.Pack(r, rest)
		k.Unpack(r)
	}
	_ = fmt.Sprint(r.ID)
}
