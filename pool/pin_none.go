//go:build penstock_nolinkname

package pool

import (
	"math/rand/v2"
	"runtime"
)

const canPin = false

// procPin chooses a shard at random: without the runtime's help the P is unknown. Latches have no owners then.
func procPin() int { return rand.IntN(runtime.GOMAXPROCS(0)) }

func procUnpin() {}
