//go:build !linux

package main

// Run fails.
func (*benchReloadCmd) Run() error { return errLinux }
