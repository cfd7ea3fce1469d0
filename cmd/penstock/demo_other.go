//go:build !linux

package main

import "errors"

// errLinux says where the demo and the bench run: they read what their children
// use from the kernel, and show a system call of Linux.
var errLinux = errors.New("demo and bench run on Linux only")

// Run fails.
func (*demoCmd) Run() error { return errLinux }

// Run fails.
func (*partCmd) Run() error { return errLinux }
