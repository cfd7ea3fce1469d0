//go:build !linux

package main

// Run fails.
func (*incidentCmd) Run() error { return errLinux }
