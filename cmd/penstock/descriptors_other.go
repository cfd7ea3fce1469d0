//go:build !linux

package main

// descriptors is what a system offers at least, by default.
func descriptors() int { return 1024 }
