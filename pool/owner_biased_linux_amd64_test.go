//go:build gc && !penstock_portable && !penstock_nolinkname

package pool_test

import (
	"context"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/pool"
)

// TestOwners fails where the fast build would silently be the slow one.
func TestOwners(t *testing.T) {
	p := must.Get(pool.New(pool.Config[int]{New: func(context.Context) (int, error) { return 0, nil }}))(t)
	defer p.Close()
	if !p.Owned() {
		t.Skip("the kernel refuses membarrier(2) here")
	}
	if !p.Divided() {
		t.Error("one shard for all")
	}
}

// TestBarrierFails takes membarrier away while pools are in use: no item may be in
// two hands nevertheless, and shards lose their owners.
func TestBarrierFails(t *testing.T) {
	if len(pool.Variants()) < 2 {
		t.Skip("the kernel refuses membarrier(2) here")
	}
	setProcs(t, 4)
	owner := pool.Variants()[1]
	for range 5 {
		s := &stress{plot: plot{procs: 4, workers: 4, maxIdle: 1000, hold: 20}}
		restored := make(chan func(), 1)
		time.AfterFunc(episode/3, func() { restored <- pool.BreakMembarrier() })
		s.run(t, owner)
		if s.p.Owned() {
			t.Error("the shards have owners")
		}
		(<-restored)()
		s.verify(t)
	}
}
