package vecio_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/vecio"
)

// TestNoMemoryForZeroCopy: if a user may lock no memory, the kernel answers ENOBUFS, and
// everything is copied.
func TestNoMemoryForZeroCopy(t *testing.T) {
	if !privilege.Ordinary(t) {
		return
	}
	client, server := sockets.TCPPair(t)
	w, l := zeroCopied(t, client, vecio.Config{}), newLender(t)
	limit, err := sys.RlimitMemlock()
	must(t, err, sys.SetRlimitMemlock(0))
	defer func() { must(t, sys.SetRlimitMemlock(limit)) }()
	payload := random(50 << 10)
	for range 3 {
		must(t, w.Own(l.lend(payload), l), w.End())
		if got := received(t, server, len(payload)); !bytes.Equal(got, payload) {
			t.Error("something else arrived")
		}
	}
	l.want(3, 0)
	if s := w.Stats().ZeroCopy; s.NoBuffer != 3 || s.Calls != 0 || s.State != vecio.ZeroCopyOn {
		t.Errorf("%+v; want 3 times no buffer", s)
	}
}

// TestZeroCopyElsewhere: where zero copy is not used, the state gives the reason.
func TestZeroCopyElsewhere(t *testing.T) {
	cfg := &vecio.Config{ZeroCopy: 10 << 10}
	tcp, tcpPeer := sockets.TCPPair(t)
	unix, unixPeer := sockets.UnixPair(t)
	var buffer bytes.Buffer
	for name, c := range map[string]struct {
		w    *vecio.Writer
		peer io.Reader
		want vecio.ZeroCopyState
	}{
		"conn":        {newWriter(t, tcp, cfg), tcpPeer, vecio.ZeroCopyPath},
		"memory":      {newWriter(t, &buffer, cfg), &buffer, vecio.ZeroCopyPath},
		"unix socket": {newSocket(t, unix, cfg), unixPeer, vecio.ZeroCopyRefused},
		"not asked":   {newSocket(t, tcp, nil), tcpPeer, vecio.ZeroCopyOff},
	} {
		l := newLender(t)
		must(t, c.w.Own(l.lend(random(50<<10)), l), c.w.End())
		l.want(1, 0)
		received(t, c.peer, 50<<10)
		if s := c.w.Stats().ZeroCopy; s.State != c.want || s.Calls != 0 {
			t.Errorf("%s: %+v, want %v", name, s, c.want)
		}
		if n, err := c.w.Reap(); n != 0 || err != nil {
			t.Errorf("%s: Reap returns %d, %v", name, n, err)
		}
		if c.want == vecio.ZeroCopyPath || c.want == vecio.ZeroCopyRefused {
			if err := c.w.Abort(); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%s: Abort returns %v", name, err)
			}
		}
	}
}

// TestSomebodyElsesCalls: on a socket on which another writer has made calls, nothing is
// given back that the kernel may need.
func TestSomebodyElsesCalls(t *testing.T) {
	client, server := sockets.TCPPair(t)
	w, l := zeroCopied(t, client, vecio.Config{}), newLender(t)
	fd, b := sockets.FD(t, client), random(20<<10)
	for range 3 {
		n, err := sys.Send(fd, b, sys.MSG_ZEROCOPY|sys.MSG_NOSIGNAL)
		must(t, err)
		received(t, server, n)
		for deadline := time.Now().Add(time.Minute); ; {
			if _, err := sys.RecvZerocopyNotice(fd); err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("no notice")
			}
		}
	}
	must(t, w.Own(l.lend(random(20<<10)), l), w.End())
	received(t, server, 20<<10)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		n, err := w.Reap()
		if err != nil {
			if n != 1 || !strings.Contains(err.Error(), "one writer") {
				t.Errorf("%d held, %v", n, err)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the lost notice was not detected")
		}
	}
	l.want(0, 1)
	if s := w.Stats().ZeroCopy.State; s != vecio.ZeroCopyLost {
		t.Error(s)
	}
}

// TestThePollerTakesNoticesForErrors is why writers of New send nothing with MSG_ZEROCOPY: a
// Read that waits in the runtime's poller fails when there is a notice, but neither data
// nor room. If this test fails because it does not, they may.
func TestThePollerTakesNoticesForErrors(t *testing.T) {
	client, server, before := withoutWindow(t, 16<<10)
	fd, piece := sockets.FD(t, client), random(16<<10)
	must(t, sys.SetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_ZEROCOPY, 1))
	n, err := sys.Send(fd, piece, sys.MSG_ZEROCOPY|sys.MSG_NOSIGNAL|sys.MSG_DONTWAIT)
	if err == syscall.ENOBUFS {
		t.Skip("needs 20 KiB of RLIMIT_MEMLOCK, which other processes of this user have used up")
	}
	must(t, err)
	for err == nil { // no room is left, and the notice will not make enough
		_, err = sys.Send(fd, piece, sys.MSG_NOSIGNAL|sys.MSG_DONTWAIT)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := client.Read(make([]byte, 1))
		failed <- err
	}()
	// The notice comes when the whole segment that has the piece is acknowledged. A
	// segment may have 64 KiB; the rest of it are bytes sent after the piece.
	must(t, server.SetReadBuffer(200<<10))
	received(t, server, before+n+(128<<10))
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), "not pollable") {
			t.Errorf("Read returns %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("Read did not fail: writers of New may send with MSG_ZEROCOPY now")
	}
}
