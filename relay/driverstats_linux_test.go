package relay_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// TestDriverStats: bulk that has piled up promotes a direction, messages demote it,
// and the relay's statistics say so whoever drives.
func TestDriverStats(t *testing.T) {
	t.Parallel()
	eachDriver(t, testDriverStats)
}

func testDriverStats(t *testing.T, d *driving) {
	r := newRelay(t, nil)
	g := d.newRig(t, r, tcp, tcp)
	if got := r.Stats().Drivers; got != (relay.DriverStats{}) {
		t.Fatalf("at the beginning: %+v", got)
	}
	sent := fillUp(t, g.A)
	if _, err := io.CopyN(io.Discard, g.B, sent); err != nil {
		t.Fatal(err)
	}
	if got := r.Stats().Drivers; got.Promotions == 0 {
		t.Errorf("after bulk: %+v", got)
	}
	for i := range 8 {
		if err := ping(g.A, g.B, byte(i)); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = g.A.CloseWrite(), g.B.CloseWrite()
	g.checkClean(int(sent)+8, 0)
	got := r.Stats().Drivers
	if got.Demotions == 0 {
		t.Errorf("after messages: %+v", got)
	}
	if d.onLoop() && got != d.looped(t, r).driver.Stats() {
		t.Errorf("the relay says %+v, its driver %+v", got, d.looped(t, r).driver.Stats())
	}
}

// TestResiduesAreCounted: what a sink does not take is in a slot of the arena, or on
// the heap if that has no room but for the warm buffer.
func TestResiduesAreCounted(t *testing.T) {
	t.Parallel()

	for chunks, heap := range map[int64]bool{1: true, 2: false} {
		r := newRelay(t, &relay.Config{Engine: relay.EngineCopy})
		d := ofLoop()
		on := newLooped(t, r, &loop.Config{}, &arena.Config{Locals: 1, Size: chunks * arena.ChunkSize})
		d.loops[r] = on
		g := d.newRig(t, r, smallTCP, smallTCP)
		if err := ping(g.A, g.B, 1); err != nil {
			t.Fatal(err)
		}
		if got := on.driver.Stats(); got != (relay.DriverStats{}) {
			t.Errorf("after a message that was taken: %+v", got)
		}
		fillUp(t, g.A)
		if got := on.driver.Stats(); (got.HeapResidues > 0) != heap || (got.Residues > 0) == heap {
			t.Errorf("with %d chunks: %+v", chunks, got)
		}
		g.cancel(errors.New("enough"))
		_, _ = g.wait()
	}
}

// TestCutTurnsAreCounted: a message ends within its turn, bulk does not for long.
func TestCutTurnsAreCounted(t *testing.T) {
	t.Parallel()

	r := newRelay(t, &relay.Config{Engine: relay.EngineCopy})
	d := ofLoop()
	g := d.newRig(t, r, tcp, tcp)
	on := d.looped(t, r)
	if err := ping(g.A, g.B, 1); err != nil {
		t.Fatal(err)
	}
	if n := on.driver.Stats().TurnsCut; n != 0 {
		t.Errorf("%d turns cut for a message", n)
	}
	received := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, g.B)
		received <- err
	}()
	piece, sent := make([]byte, 1<<20), 1
	for end := time.Now().Add(patience); on.driver.Stats().TurnsCut == 0; sent += len(piece) {
		if time.Now().After(end) {
			t.Fatal("no turn was ever cut")
		}
		if _, err := g.A.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = g.A.CloseWrite(), g.B.CloseWrite()
	if err := <-received; err != nil {
		t.Error(err)
	}
	g.checkClean(sent, 0)
}

// TestStatsOutliveTheDriver: the relay keeps what a driver did, and not the driver.
func TestStatsOutliveTheDriver(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	l, err := loop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d, err := r.NewDriver(l, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.OpenDrivers(); n != 1 {
		t.Errorf("%d drivers are open", n)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if n := r.OpenDrivers(); n != 0 {
		t.Errorf("%d drivers are open after the end", n)
	}
}
