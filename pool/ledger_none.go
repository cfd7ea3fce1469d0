//go:build !invariants

package pool

const invariants = false

// A ledger does nothing without the build tag invariants.
type ledger[T any] struct{}

func (ledger[T]) in(T)            {}
func (ledger[T]) out(T)           {}
func (ledger[T]) check(string, T) {}
