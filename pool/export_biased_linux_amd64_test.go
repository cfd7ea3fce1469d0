//go:build gc && !penstock_portable && !penstock_nolinkname

package pool

import "github.com/penstock/penstock/internal/sys"

// BreakMembarrier lets membarrier fail until the function that it returns is
// called. From then on new pools have owners again.
func BreakMembarrier() func() {
	brokenBarrier.Store(true)
	return func() {
		brokenBarrier.Store(false)
		owners.ok.Store(sys.Membarrier() == nil)
	}
}
