//go:build !linux

package main

// Run fails.
func (*rollingCmd) Run() error { return errLinux }
