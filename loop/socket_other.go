//go:build !linux

package loop

import "syscall"

func checkListener(int) error     { return errUnsupported }
func accept(int) (int, error)     { return -1, errUnsupported }
func closeSocket(int)             {}
func abortOnClose(int)            {}
func socketError(int) error       { return errUnsupported }
func connect(int, *Address) error { return errUnsupported }

func openSocket(*Address, *DialConfig) (int, error) { return -1, errUnsupported }

func duplicate(syscall.Conn) (int, error) { return -1, errUnsupported }
