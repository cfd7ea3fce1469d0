//go:build penstock_mutant_nobarrier

package pool

const mutant = noBarrier
