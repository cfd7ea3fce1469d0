//go:build penstock_mutant_norevoke

package pool

const mutant = noRevoke
