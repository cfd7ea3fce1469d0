//go:build race

package limit_test

// slower is by how much there is less of what many are tried with.
const slower = 10
