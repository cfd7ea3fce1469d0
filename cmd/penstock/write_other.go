//go:build !linux

package main

// Run fails.
func (*writeCmd) Run() error { return errLinux }
