//go:build penstock_mutant_nolowwater

package pool

const mutant = noLowWater
