package sys_test

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

func TestNamesOfTCPSockets(t *testing.T) {
	client, server := sockets.TCPPair(t)
	at := func(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }
	local, err := sys.LocalName(sockets.FD(t, client))
	if err != nil || local.AddrPort != at(server.RemoteAddr()) || local.Path != "" {
		t.Errorf("the client's own name is %v, %v", local, err)
	}
	peer, err := sys.PeerName(sockets.FD(t, client))
	if err != nil || peer.AddrPort != at(server.LocalAddr()) {
		t.Errorf("the client's peer is %v, %v", peer, err)
	}
}

func TestNamesOfUnixSockets(t *testing.T) {
	client, server := sockets.UnixPair(t)
	peer, err := sys.PeerName(sockets.FD(t, client))
	if want := server.LocalAddr().String(); err != nil || peer.Path != want {
		t.Errorf("the client's peer is %v, %v, want %s", peer, err, want)
	}
	if peer, err := sys.PeerName(sockets.FD(t, server)); err != nil || peer.Path != "@" {
		t.Errorf("a client without a name is %q, %v", peer.Path, err)
	}
}

func TestNameOfWhatHasNone(t *testing.T) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if _, err := sys.PeerName(fd); err != syscall.ENOTCONN {
		t.Errorf("the peer of a socket that is not connected: %v", err)
	}
}
