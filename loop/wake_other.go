//go:build !linux

package loop

func wake(int) {}
