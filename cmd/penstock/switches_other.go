//go:build !linux

package main

import "errors"

// Run fails.
func (*switchesCmd) Run() error {
	return errors.New("bench switches: runs on Linux only")
}
