//go:build penstock_mutant_nowait

package pool

const mutant = noWait
