//go:build !(penstock_mutant_nobarrier || penstock_mutant_nobudget || penstock_mutant_nolowwater || penstock_mutant_nopin || penstock_mutant_norevoke || penstock_mutant_noshut || penstock_mutant_nowait)

package pool

const mutant = none
