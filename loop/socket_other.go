//go:build !linux

package loop

import (
	"net"
	"net/netip"
	"syscall"
)

func checkListener(int) error     { return errUnsupported }
func closeSocket(int)             {}
func abortOnClose(int)            {}
func socketError(int) error       { return errUnsupported }
func connect(int, *Address) error { return errUnsupported }

func accept(int) (int, netip.AddrPort, error) { return -1, netip.AddrPort{}, errUnsupported }

func openSocket(*Address, *DialConfig) (int, error) { return -1, errUnsupported }

func duplicate(syscall.Conn) (int, error) { return -1, errUnsupported }

func readSocket(int, []byte) (int, error) { return 0, errUnsupported }
func sendSocket(int, []byte) (int, error) { return 0, errUnsupported }
func shutdownWrite(int) error             { return errUnsupported }
func setNoDelay(int)                      {}
func localAddr(int) net.Addr              { return nil }
