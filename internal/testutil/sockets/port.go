package sockets

import (
	"net"
	"os"
	"strconv"
	"testing"
)

// LowPort returns a port that is free at every address, and that no connection of this
// machine is made from. Somebody else may take it before the caller does.
func LowPort(t testing.TB) string {
	t.Helper()
	for port := 20000 + os.Getpid()%10000; port < 32000; port++ {
		ln, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err == nil {
			ln.Close()
			return strconv.Itoa(port)
		}
	}
	t.Fatal("no port is free")
	return ""
}
