//go:build !linux

package main

// Run fails.
func (*benchTLSCmd) Run() error { return errLinux }
