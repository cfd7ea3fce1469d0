//go:build race

package limit_test

// slower is the factor by which tests with many connections use fewer.
const slower = 10
