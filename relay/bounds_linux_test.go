package relay_test

import (
	"fmt"
	"io"
	"net"
	"reflect"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/relay"
)

// TestNeverReads: backends that never read. Each session holds one lease and no more,
// and gives it back when it is cut. On a loop it is in the arena as far as that one's budget
// goes, and on the heap beyond, which is counted.
func TestNeverReads(t *testing.T) {
	t.Parallel()

	for _, e := range engines {
		t.Run(e.String(), func(t *testing.T) {
			eachDriver(t, func(t *testing.T, d *driving) { testNeverReads(t, d, e) })
		})
	}
}

func testNeverReads(t *testing.T, d *driving, e relay.Engine) {
	const pairs = 100
	r := newRelay(t, &relay.Config{Engine: e})
	if d.onLoop() {
		d.loops[r] = newLooped(t, r, &loop.Config{}, &arena.Config{Locals: 1, Size: 2 * arena.ChunkSize})
	}
	rigs, sent := make([]*rig, pairs), make([]int64, pairs)
	for i := range rigs {
		rigs[i] = d.newRig(t, r, smallTCP, smallTCP)
	}
	buffers := fillAll(t, d, r, rigs, sent)
	if e == relay.EngineCopy && buffers != pairs {
		t.Errorf("%d buffers: want %d", buffers, pairs)
	}
	if d.onLoop() {
		checkResidues(t, d.looped(t, r), buffers, e == relay.EngineCopy)
	}
	for _, g := range rigs {
		g.cancel(fmt.Errorf("enough"))
		if res, _ := g.wait(); res.AToB.Lost == 0 || res.AToB.Lost > 2<<20 {
			t.Fatalf("%+v", res)
		}
	}
	if pipes, buffers := d.holds(t, r); pipes != 0 || buffers != 0 {
		t.Errorf("after the end: %d pipes, %d buffers", pipes, buffers)
	}
}

// checkResidues looks where so many buffers are: in the arena, or where its budget is
// spent on the heap.
func checkResidues(t *testing.T, on *looped, buffers int64, spent bool) {
	t.Helper()
	var out arena.Usage
	on.do(func() {
		on.arena.Local(0).Flush()
		out = on.arena.Stats().ByPurpose[arena.Residue]
	})
	heap := buffers - (out.Out - 1) // one is warm
	if heap < 0 || heap > 0 && out.Refused < heap || out.Bytes > 2*arena.ChunkSize {
		t.Errorf("%d buffers, %d of them on the heap: %+v", buffers, heap, out)
	}
	if spent && heap == 0 {
		t.Errorf("none of %d buffers is on the heap: want the arena's budget spent", buffers)
	}
}

// TestDrivenAllocates: a message and its echo through a session on a loop allocate
// nothing.
func TestDrivenAllocates(t *testing.T) {
	for _, e := range engines {
		g := ofLoop().newRig(t, newRelay(t, &relay.Config{Engine: e, IdleTimeout: 3600e9}), tcp, tcp)
		message := make([]byte, 4096)
		n := testing.AllocsPerRun(500, func() {
			for _, way := range [][2]net.Conn{{g.A, g.B}, {g.B, g.A}} {
				if _, err := way[0].Write(message); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(way[1], message); err != nil {
					t.Fatal(err)
				}
			}
		})
		if n != 0 {
			t.Errorf("%v: %v allocations for a message and its echo", e, n)
		}
	}
}

// TestOneTurnEach: however busy a session is, it is called again once in a turn.
func TestOneTurnEach(t *testing.T) {
	t.Parallel()

	for _, e := range engines {
		r := newRelay(t, &relay.Config{Engine: e})
		d := ofLoop()
		g := d.newRig(t, r, tcp, tcp)
		on, moved := d.looped(t, r), make(chan struct{})
		go func() {
			defer close(moved)
			g.exchange(content(1, 24<<20), content(2, 24<<20), 1<<20)
		}()
		most := 0
		for busy := true; busy; {
			select {
			case <-moved:
				busy = false
			default:
				on.do(func() { most = max(most, reflect.ValueOf(on.loop).Elem().FieldByName("again").Len()) })
			}
		}
		g.checkClean(24<<20, 24<<20)
		if most > 1 {
			t.Errorf("%v: one session waited in %d places", e, most)
		}
	}
}

// TestDescriptorsSpent: at RLIMIT_NOFILE there are no pipes. The sessions copy, and
// say so.
func TestDescriptorsSpent(t *testing.T) {
	eachDriver(t, func(t *testing.T, d *driving) {
		pipes, err := pipe.NewPool(&pipe.Config{IdleTime: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer pipes.Close()
		r := newRelay(t, &relay.Config{Engine: relay.EngineSplice, Pipes: pipes})
		g := d.newRig(t, r, tcp, tcp)
		for _, way := range [][2]net.Conn{{g.A, g.B}, {g.B, g.A}} { // lest one comes later
			if err := ping(way[0], way[1], 1); err != nil {
				t.Fatal(err)
			}
		}
		waitQuiet(t, r)
		soft, hard, err := sys.RlimitNoFileRange()
		if err != nil {
			t.Fatal(err)
		}
		highest := uint64(0)
		for fd := range leak.Take() {
			highest = max(highest, uint64(fd))
		}
		// What is below is taken up, so that not even one is left.
		var taken []int
		defer func() {
			for _, fd := range taken {
				_ = syscall.Close(fd)
			}
			if err := sys.SetRlimitNoFile(soft, hard); err != nil {
				t.Fatal(err)
			}
		}()
		if err := sys.SetRlimitNoFile(highest+1, hard); err != nil {
			t.Fatal(err)
		}
		for {
			fd, err := sys.Dup(0)
			if err != nil {
				break
			}
			taken = append(taken, fd)
		}
		g.exchange(content(1, 300_000), content(2, 100_000), 50_000)
		res := g.checkClean(300_001, 100_001)
		for _, f := range []relay.Flow{res.AToB, res.BToA} {
			if f.Spliced > 1 || f.Fallbacks[relay.FallbackDescriptors] == 0 {
				t.Errorf("%+v, want all copied for want of descriptors", f)
			}
		}
	})
}

// TestSpliceRefusedInBetween: sessions have pipes full of what their destinations did
// not take when a sandbox comes down that refuses splice. What they get out of the
// pipes they keep apart, though their destinations still take it bit by bit.
func TestSpliceRefusedInBetween(t *testing.T) {
	t.Parallel()

	eachDriver(t, func(t *testing.T, d *driving) {
		if !privilege.Refused(t, syscall.EPERM, sys.SYS_SENDFILE) {
			return
		}
		r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
		rigs, sent := make([]*rig, 8), make([]int64, 8)
		for i := range rigs {
			rigs[i] = d.newRig(t, r, smallTCP, func(t testing.TB) (halfConn, net.Conn) {
				far, near := unixStream(t)
				_ = near.(*net.UnixConn).SetWriteBuffer(4096) // takes much less than a pipe holds
				return far, near
			})
		}
		if buffers := fillAll(t, d, r, rigs, sent); buffers != 0 {
			t.Fatalf("%d buffers instead of pipes", buffers)
		}
		if err := sys.SeccompRefuse(syscall.EPERM, sys.SYS_SPLICE); err != nil {
			t.Fatal(err)
		}
		got := make([][]byte, len(rigs))
		for _, g := range rigs {
			_ = g.A.CloseWrite()
			_ = g.B.CloseWrite()
		}
		piece := make([]byte, 10_000)
		for left := len(rigs); left > 0; {
			left = 0
			for i, g := range rigs {
				n, err := g.B.Read(piece)
				got[i] = append(got[i], piece[:n]...)
				if err == nil {
					left++
				} else if err != io.EOF {
					t.Fatal(err)
				}
			}
		}
		for i, g := range rigs {
			if int64(len(got[i])) != sent[i] || !isFiller(got[i], fillStart(i)) {
				t.Errorf("session %d: %d of %d bytes, or other ones", i, len(got[i]), sent[i])
			}
			if res := g.checkClean(int(sent[i]), 0); res.AToB.Fallbacks[relay.FallbackRefused] == 0 {
				t.Errorf("%+v", res.AToB)
			}
		}
	})
}
