//go:build !race

package vecio_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/vecio"
)

// TestAdaptiveAllocatesNothing, corks included. (The race detector has sync.Pool drop things at random.)
func TestAdaptiveAllocatesNothing(t *testing.T) {
	client, server := maxsegPair(t)
	piece, sink := random(3000), make([]byte, 6000)
	for name, w := range map[string]*vecio.Writer{
		"conn":   newWriter(t, client, &vecio.Config{Policy: vecio.Adaptive, Bound: time.Hour}),
		"socket": newSocket(t, client, &vecio.Config{Policy: vecio.Adaptive, Bound: time.Hour}),
	} {
		round := func() {
			must.Do(t, w.Append(piece), w.Append(piece), w.End())
			for n := 0; n < len(sink); {
				k := must.Get(server.Read(sink))(t)
				n += k
			}
		}
		round()
		if n := testing.AllocsPerRun(100, round); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if w.Stats().Corked == 0 {
			t.Errorf("%s: never corked", name)
		}
	}
}
