//go:build !linux

package pipequota

import "testing"

// Share does nothing: the quota is Linux's.
func Share(testing.TB) {}

// Spend does nothing.
func Spend(testing.TB) {}

// ShareUntilExit does nothing.
func ShareUntilExit() {}
