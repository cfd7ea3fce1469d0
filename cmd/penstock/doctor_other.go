//go:build !linux

package main

import "errors"

// Run fails: what the doctor looks at is Linux's.
func (*doctorCmd) Run() error { return errors.New("doctor: runs on Linux only") }
