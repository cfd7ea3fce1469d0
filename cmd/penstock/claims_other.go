//go:build !linux

package main

import "errors"

// Run fails.
func (*claimsCmd) Run() error {
	return errors.New("bench claims: runs on Linux only")
}
