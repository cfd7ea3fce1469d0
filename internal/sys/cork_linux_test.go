package sys_test

import (
	"io"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestCork: what is written under a cork stays in the socket, is told of by
// TCP_INFO, and leaves in one segment when the cork is drawn.
func TestCork(t *testing.T) {
	client, server := sockets.TCPPair(t)
	fd := sockets.FD(t, client)
	var before, corked, after sys.TCPInfo
	info := func(i *sys.TCPInfo) {
		t.Helper()
		if err := sys.GetTCPInfo(fd, i); err != nil {
			t.Fatal(err)
		}
	}
	cork := func(on int) {
		t.Helper()
		if err := sys.SetsockoptInt(fd, sys.IPPROTO_TCP, sys.TCP_CORK, on); err != nil {
			t.Fatal(err)
		}
	}
	info(&before)
	cork(1)
	for _, part := range []string{"he", "llo"} {
		if _, err := client.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	info(&corked)
	cork(0)
	info(&after)
	if corked.Data_segs_out == before.Data_segs_out {
		want(t, "not sent", corked.Notsent_bytes, nil, 5, nil)
	} else {
		t.Log("the cork's timer was faster than this test")
	}
	want(t, "segments", after.Data_segs_out-before.Data_segs_out, nil, 1, nil)
	if before.Snd_mss == 0 {
		t.Error("no size of segments")
	}
	b := make([]byte, 5)
	_, err := io.ReadFull(server, b)
	want(t, "read", string(b), err, "hello", nil)
}

func TestGetTCPInfoOfWhatIsNoTCPSocket(t *testing.T) {
	client, _ := sockets.UnixPair(t)
	if err := sys.GetTCPInfo(sockets.FD(t, client), new(sys.TCPInfo)); err != syscall.EOPNOTSUPP {
		t.Errorf("got %v, want EOPNOTSUPP", err)
	}
	if err := sys.GetTCPInfo(-1, new(sys.TCPInfo)); err != syscall.EBADF {
		t.Errorf("got %v, want EBADF", err)
	}
}

func TestGetTCPInfoAllocatesNothing(t *testing.T) {
	client, _ := sockets.TCPPair(t)
	fd := sockets.FD(t, client)
	if n := testing.AllocsPerRun(100, func() {
		var info sys.TCPInfo
		_ = sys.GetTCPInfo(fd, &info)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
