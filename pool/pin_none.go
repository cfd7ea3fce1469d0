//go:build penstock_nolinkname

package pool

import (
	"math/rand/v2"
	"runtime"
)

const canPin = false

// procPin chooses a shard. Without the runtime's help the P is unknown, so it spreads the
// callers; latches have no owners then.
func procPin() int { return rand.IntN(runtime.GOMAXPROCS(0)) }

func procUnpin() {}
