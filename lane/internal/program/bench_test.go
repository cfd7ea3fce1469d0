package program

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/lane/internal/frame"
	"github.com/penstock/penstock/lane/internal/translate"
)

// BenchmarkPacket is the program's time for a packet of an echo of 64 bytes, as the kernel measures single test runs of
// it: median-ns, for a run may be interrupted. To compare two versions, run the binary of each by turns.
//
//	go test -c -o program.test && ./program.test -test.run '^$' -test.bench Packet -test.benchtime 2000x -test.count 6
func BenchmarkPacket(b *testing.B) {
	p := load(b, 4)
	r := newRig(b, p, 1, false, [8]uint32{3: 7, 7: 7}, false)
	var at [2]uint32
	took := make([]time.Duration, 0, b.N)
	for i := range b.N {
		side := i % 2
		_, d, err := p.objects.PenstockIngress.Benchmark(r.echo(side, at[side], at[1-side]), 1, nil)
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, d)
		at[side] += 64
	}
	f, o := r.Session(r.slot).Flow(0), r.Session(r.slot).Flow(1)
	if carried := f.Sent + o.Sent; carried != 64*uint64(b.N) {
		b.Fatalf("%d bytes of %d packets were carried", carried, b.N)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), "median-ns")
}

// echo is the frame of a side's next 64 bytes, which acknowledges those of the other side.
func (r *rig) echo(side int, from, acknowledged uint32) []byte {
	l, f := legs[r.v6][side], &r.flow[side]
	options := slices.Concat([]byte{1, 1, 8, 10}, binary.BigEndian.AppendUint32(nil, 1+from/64), binary.BigEndian.AppendUint32(nil, 1+acknowledged/64))
	p := frame.Packet{
		From: l.Remote, To: l.Local, Flags: translate.ACK | translate.PSH, Window: 500,
		Seq: f.First + from, Ack: f.FirstAck + acknowledged, Options: options, Payload: make([]byte, 64),
	}
	return ethernet(p.Bytes())
}
