package relay_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// TestMirrorBuffersAreBounded: all mirrors of a loop without pipes have 16 MiB of the heap together. Those that need more end, and their
// sessions go on; the memory of those that end is there for others.
func TestMirrorBuffersAreBounded(t *testing.T) {
	t.Parallel()

	d, r := ofLoop(), newRelay(t, &relay.Config{Engine: relay.EngineCopy})
	var all []*mirrored
	room := func() bool {
		m := newMirrored(t, r, d, tcp, time.Minute)
		all = append(all, m)
		for range 4 {
			sendOn(t, m, 60_000)
		}
		m.on.turn()
		return m.mirrorNow().Reason == relay.MirrorNone
	}
	for room() {
		if len(all) > 16<<20/(256<<10) {
			t.Fatalf("%d mirrors have a quarter of a MiB each", len(all))
		}
	}
	if res := all[len(all)-1].mirrorEnd(); res.Reason != relay.MirrorBehind || len(all) < 60 {
		t.Errorf("of %d mirrors the last has ended with %+v", len(all), res)
	}
	all[0].on.do(all[0].mirror.Cut)
	if !room() {
		t.Errorf("a mirror in the room of another one has ended with %+v", all[len(all)-1].mirrorEnd())
	}
	for _, m := range all {
		m.on.do(m.mirror.Cut)
		m.connect()
	}
}
