//go:build !linux

package main

import "errors"

// errLinux says where the demo runs: it reads what its children use from the
// kernel, and shows a system call of Linux.
var errLinux = errors.New("demo: runs on Linux only")

// Run fails.
func (*demoCmd) Run() error { return errLinux }

// Run fails.
func (*partCmd) Run() error { return errLinux }
