//go:build !linux

package main

// Run fails.
func (*benchRunCmd) Run() error { return errLinux }

// Run fails.
func (*idleCmd) Run() error { return errLinux }

// Run fails.
func (*echoServersCmd) Run() error { return errLinux }
