//go:build penstock_mutant_nobudget

package pool

const mutant = noBudget
