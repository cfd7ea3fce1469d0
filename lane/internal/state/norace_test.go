//go:build !race

package state_test

const race = false
