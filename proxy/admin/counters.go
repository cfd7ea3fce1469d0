package admin

import (
	"slices"

	"github.com/penstock/penstock/proxy/internal/tally"
)

// CounterNames are the names of the counters of a [Status].
var CounterNames = slices.Sorted(slices.Values(append([]string{"accept_pauses", "accepted", "hellos_missing", "lost", "refused", "transitions"}, tally.SumNames()...)))
