//go:build !linux

package loop

type netpollWake struct{}

func (*netpollWake) wait()        {}
func (*netpollWake) close() error { return nil }
