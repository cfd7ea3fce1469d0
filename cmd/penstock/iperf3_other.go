//go:build !linux

package main

// Run fails.
func (*iperf3Cmd) Run() error { return errLinux }
