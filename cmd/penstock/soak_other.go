//go:build !linux

package main

// Run fails.
func (*soakCmd) Run() error { return errLinux }
