//go:build !linux

package loop

func threadTime() cpuTime { return cpuTime{} }
