//go:build !linux

package pipequota

import "testing"

// Share does nothing, because only Linux has the quota.
func Share(testing.TB) {}

// Spend does nothing.
func Spend(testing.TB) {}

// ShareUntilExit does nothing.
func ShareUntilExit() {}
