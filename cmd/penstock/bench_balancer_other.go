//go:build !linux

package main

// Run fails.
func (*balancerCmd) Run() error { return errLinux }
