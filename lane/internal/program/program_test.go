package program

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/lane/internal/frame"
	"github.com/penstock/penstock/lane/internal/translate"
)

// load loads the programs. In a process that may not load them it skips the test, but it fails the test for
// root.
func load(t testing.TB, sessions uint32) *Program {
	t.Helper()
	p, err := Load(sessions, "")
	if errors.Is(err, os.ErrPermission) && os.Geteuid() != 0 {
		t.Skip("an ordinary user may not load BPF programs:", err)
	}
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		t.Fatalf("%+v", refused)
	}
	must.Do(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestLoad(t *testing.T) {
	p := load(t, 64)
	for slot := range p.Size() {
		if s := p.Session(slot); s.State() != 0 {
			t.Errorf("slot %d: %v", slot, s.State())
		}
	}
}

// TestEffortOfVerifier: the kernel's verifier follows few instructions, because a process waits while its
// programs are loaded. The translation needed 164,000 instructions when its functions were verified at each of
// their calls, and every number of a SACK option at each of its places.
func TestEffortOfVerifier(t *testing.T) {
	p := load(t, 1)
	for name, one := range map[string]struct {
		program *ebpf.Program
		most    uint32
	}{"ingress": {p.objects.PenstockIngress, 40_000}, "egress": {p.objects.PenstockEgress, 5_000}} {
		info := must.Get(one.program.Info())(t)
		n, known := info.VerifiedInstructions()
		if !known {
			t.Skip("the kernel does not report it (before Linux 5.16)")
		}
		t.Logf("%s: %d instructions", name, n)
		if n > one.most {
			t.Errorf("%s: the verifier followed %d instructions, want %d at most", name, n, one.most)
		}
	}
}

func TestMain(m *testing.M) {
	netns.Main()
	leak.Main(m)
}

// BenchmarkPacket measures how long the program takes for a packet of an echo of 64 bytes. The kernel measures
// single test runs. median-ns is their median, because a run may be interrupted. To compare two versions, run
// their binaries in turns.
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

// echo returns the frame with a side's next 64 bytes. It acknowledges the bytes of the other side.
func (r *rig) echo(side int, from, acknowledged uint32) []byte {
	l, f := legs[r.v6][side], &r.flow[side]
	options := slices.Concat([]byte{1, 1, 8, 10}, binary.BigEndian.AppendUint32(nil, 1+from/64), binary.BigEndian.AppendUint32(nil, 1+acknowledged/64))
	p := frame.Packet{
		From: l.Remote, To: l.Local, Flags: translate.ACK | translate.PSH, Window: 500,
		Seq: f.First + from, Ack: f.FirstAck + acknowledged, Options: options, Payload: make([]byte, 64),
	}
	return ethernet(p.Bytes())
}

// skb has the first fields of a struct __sk_buff (include/uapi/linux/bpf.h).
type skb struct {
	_       [10]uint32
	ifindex uint32
	_       [37]uint32
}

// TestFromElsewhere: a packet with the addresses of a session over the loopback is dropped if it comes from
// another device. The kernel would drop it too (martian source).
func TestFromElsewhere(t *testing.T) {
	p := load(t, 4) // skips the test for an ordinary user
	if !netns.Alone(t) {
		return
	}
	netns.Here(t).IP("link add here type veth peer name there")
	device := must.Get(net.InterfaceByName("here"))(t)
	for _, v6 := range []bool{false, true} {
		r := newRig(t, p, 1, v6, [8]uint32{}, false)
		l := legs[v6][0]
		packet := ethernet(frame.Packet{From: l.Remote, To: l.Local, Window: 100, Flags: translate.ACK, Payload: make([]byte, 5)}.Bytes())
		for _, c := range []struct {
			from    int
			dropped bool
		}{{1, false}, {device.Index, true}} {
			out := make([]byte, len(packet)+64)
			o := ebpf.RunOptions{Data: packet, DataOut: out, Context: &skb{ifindex: uint32(c.from)}}
			answer := must.Get(p.objects.PenstockIngress.Run(&o))(t)
			if dropped := int32(answer) == drop; dropped != c.dropped || c.dropped && !bytes.Equal(o.DataOut, packet) {
				t.Errorf("IPv6 %v, from device %d: answer %d", v6, c.from, int32(answer))
			}
		}
		r.end()
	}
}
