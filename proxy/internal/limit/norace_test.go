//go:build !race

package limit_test

const slower = 1
