//go:build penstock_mutant_noshut

package pool

const mutant = noShut
