//go:build !linux

package main

// Run fails.
func (*benchRunCmd) Run() error { return errLinux }
