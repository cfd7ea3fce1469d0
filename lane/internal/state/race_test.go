//go:build race

package state_test

const race = true
