//go:build !linux

package pool_test

func preemptions() int64 { return 0 }
