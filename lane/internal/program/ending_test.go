package program

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/lane/internal/frame"
	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

// carried is how many bytes the sessions of these tests have carried when they end.
const carried = 1000

// TestEndIsNoByte: an end of file that passes, and is acknowledged, while the accounts are read is never counted as a byte. The
// writer's steps are those of the programs.
func TestEndIsNoByte(t *testing.T) {
	var s Session
	h, o := &s.Half[0], &s.Half[1]
	var turn atomic.Int64
	const turns = 30_000
	rnd := rand.New(rand.NewPCG(1, 1))
	go func() {
		for i := int64(1); i <= turns; i++ {
			for turn.Load() != 2*i-1 {
				runtime.Gosched()
			}
			for range rnd.IntN(60) {
				_ = turn.Load() // so that the steps fall anywhere among the reader's
			}
			atomic.StoreUint64(&h.Fin, carried+1)
			atomic.StoreUint64(&h.Sent, carried+1)
			atomic.StoreUint64(&o.Acked, carried+1)
			turn.Store(2 * i)
		}
	}()
	for i := int64(1); i <= turns; i++ {
		h.Sent, h.Fin, o.Acked, o.Edge = carried, 0, carried, 2*carried
		turn.Store(2*i - 1)
		f := s.Flows()
		if d, c := translate.Delivered(&f[0], &f[1]), translate.Carried(&f[0], &f[1]); d != carried || c != carried {
			t.Errorf("turn %d: %d bytes delivered and %d carried, want %d: sent %d, acknowledged %d, end %d", i, d, c, carried, f[0].Sent, f[1].Acked, f[0].Fin)
		}
		for turn.Load() != 2*i {
			runtime.Gosched()
		}
		if t.Failed() {
			return
		}
	}
}

// TestEndIsNotedFirst: the programs note an end of file before the number that counts it as a byte.
func TestEndIsNotedFirst(t *testing.T) {
	p := load(t, 4)
	r := newRig(t, p, 1, false, [8]uint32{}, false)
	s := r.Session(r.slot)
	h := &s.Half[0]
	l := legs[false][0]
	fin := frame.Packet{From: l.Remote, To: l.Local, Flags: translate.FIN | translate.ACK, Window: 1000, Seq: h.First + carried, Ack: h.FirstAck}.Bytes()
	var turn atomic.Int64 // 3 above a multiple of 4 while the program may run; below 0 at the end
	seen := make(chan uint64)
	go func() {
		var wrong uint64
		for {
			at := turn.Load()
			sent, end := atomic.LoadUint64(&h.Sent), atomic.LoadUint64(&h.Fin)
			switch {
			case at < 0:
				seen <- wrong
				return
			case at%4 == 3 && sent > carried && end == 0 && turn.Load() == at:
				wrong++
			}
		}
	}()
	for range 5000 {
		turn.Add(1)
		atomic.StoreUint64(&h.Sent, carried)
		atomic.StoreUint64(&h.Fin, 0)
		turn.Add(1)
		atomic.StoreUint64(&s.Word, uint64(state.Lane))
		turn.Add(1)
		run(t, p.objects.PenstockIngress, fin)
		turn.Add(1)
	}
	turn.Store(-1)
	if n := <-seen; n > 0 {
		t.Errorf("the number was read %d times without the end", n)
	}
}
