package sys_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// vector returns an entry for each part; none is empty.
func vector(parts ...string) (v []sys.Iovec) {
	for _, p := range parts {
		b := []byte(p)
		v = append(v, sys.Iovec{Base: &b[0]})
		v[len(v)-1].SetLen(len(b))
	}
	return v
}

func TestSendmsg(t *testing.T) {
	a, b, err := sys.SocketPair()
	want(t, "socketpair", 0, err, 0, nil)
	defer sys.Close(b)
	n, err := sys.Sendmsg(a, vector("he", "ll", "o"), sys.MSG_NOSIGNAL|sys.MSG_DONTWAIT)
	want(t, "sendmsg", n, err, 5, nil)
	n, err = sys.WritevVector(a, vector(", ", "world"))
	want(t, "writev", n, err, 7, nil)
	got := make([]byte, 20)
	n, err = sys.Recv(b, got, sys.MSG_DONTWAIT)
	want(t, "recv", string(got[:n]), err, "hello, world", nil)

	many := make([]sys.Iovec, sys.IOV_MAX+1)
	for i := range many {
		many[i] = vector("x")[0]
	}
	n, err = sys.Sendmsg(a, many[1:], sys.MSG_NOSIGNAL)
	want(t, "sendmsg of IOV_MAX", n, err, sys.IOV_MAX, nil)
	n, err = sys.Sendmsg(a, many, sys.MSG_NOSIGNAL)
	want(t, "sendmsg of more", n, err, 0, error(syscall.EMSGSIZE))
	n, err = sys.WritevVector(a, many)
	want(t, "writev of more", n, err, 0, error(syscall.EINVAL))

	full := vector(string(bytes.Repeat([]byte("x"), 1<<20)))
	for err = nil; err == nil; {
		_, err = sys.Sendmsg(a, full, sys.MSG_NOSIGNAL|sys.MSG_DONTWAIT)
	}
	want(t, "sendmsg to a full socket", 0, err, 0, error(syscall.EAGAIN))
	want(t, "close", 0, sys.Close(a), 0, nil)
	n, err = sys.Sendmsg(a, full, sys.MSG_NOSIGNAL)
	want(t, "sendmsg to nothing", n, err, 0, error(syscall.EBADF))
}

func TestWritev(t *testing.T) {
	r, w := newPipe(t)
	n, err := sys.Writev(w, [][]byte{[]byte("he"), nil, []byte("llo")})
	want(t, "writev", n, err, 5, nil)
	b := make([]byte, 10)
	n, err = sys.Read(r, b)
	want(t, "read", string(b[:n]), err, "hello", nil)
	n, err = sys.Writev(-1, [][]byte{b})
	want(t, "writev", n, err, 0, error(syscall.EBADF))
}

func TestTheTimeOfAThreadRises(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sum := func() time.Duration {
		used, err := sys.Getrusage(sys.RUSAGE_THREAD)
		if err != nil {
			t.Fatal(err)
		}
		return used.Utime + used.Stime
	}
	begin, deadline := sum(), time.Now().Add(10*time.Second)
	for sum() <= begin {
		if time.Now().After(deadline) {
			t.Fatal("a busy thread used no time")
		}
	}
}

// zerocopyPair is a pair whose client may send with MSG_ZEROCOPY.
func zerocopyPair(t *testing.T) (client, server *net.TCPConn, fd int) {
	t.Helper()
	client, server = sockets.TCPPair(t)
	fd = sockets.FD(t, client)
	if err := sys.SetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_ZEROCOPY, 1); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("every Linux since 4.14 has SO_ZEROCOPY: ", err)
		}
		t.Skipf("this kernel has no SO_ZEROCOPY: %v", err)
	}
	return client, server, fd
}

// sendZerocopy sends until the socket takes no more or n calls have sent, and
// returns how many bytes and calls those were.
func sendZerocopy(t *testing.T, fd, n int, b []byte) (bytes, calls int) {
	t.Helper()
	for calls < n {
		k, err := sys.Send(fd, b, sys.MSG_ZEROCOPY|sys.MSG_NOSIGNAL|sys.MSG_DONTWAIT)
		if err == syscall.EAGAIN || err == syscall.ENOBUFS {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		bytes += k
		calls++
	}
	if calls == 0 {
		t.Fatal("nothing was sent")
	}
	return bytes, calls
}

// notices takes notices until they account for so many calls.
func notices(t *testing.T, fd, calls int) (all []sys.ZerocopyNotice) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for got := 0; got < calls; {
		n, err := sys.RecvZerocopyNotice(fd)
		switch {
		case err == nil:
			all = append(all, n)
			got += int(n.Hi-n.Lo) + 1
		case err != syscall.EAGAIN:
			t.Fatal(err)
		case time.Now().After(deadline):
			t.Fatalf("notices of %d calls of %d: %+v", got, calls, all)
		default:
			time.Sleep(time.Millisecond)
		}
	}
	return all
}

func TestRecvZerocopyNotice(t *testing.T) {
	_, server, fd := zerocopyPair(t)
	_, err := sys.RecvZerocopyNotice(fd)
	want(t, "notice of nothing", 0, err, 0, error(syscall.EAGAIN))
	bytes, calls := sendZerocopy(t, fd, 3, make([]byte, 8192))
	if _, err := io.CopyN(io.Discard, server, int64(bytes)); err != nil {
		t.Fatal(err)
	}
	next := uint32(0)
	for _, n := range notices(t, fd, calls) {
		if n.Lo != next || !n.Copied {
			t.Errorf("got %+v, want copied ones from %d on", n, next)
		}
		next = n.Hi + 1
	}
}

func TestRecvZerocopyNoticeAllocatesNothing(t *testing.T) {
	_, server, fd := zerocopyPair(t)
	b := make([]byte, 4096)
	if n := testing.AllocsPerRun(20, func() {
		if _, err := sys.Send(fd, b, sys.MSG_ZEROCOPY|sys.MSG_NOSIGNAL); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(server, b); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); ; {
			_, err := sys.RecvZerocopyNotice(fd)
			if err == nil {
				break
			}
			if err != syscall.EAGAIN || time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestParseNotice(t *testing.T) {
	const ip, recverr, ip6, recverr6 = 0, 11, 41, 25
	le := func(origin, code byte, lo, hi uint32) []byte {
		b := binary.NativeEndian.AppendUint32(nil, 0)
		b = append(b, origin, 0, code, 0)
		b = binary.NativeEndian.AppendUint32(b, lo)
		return binary.NativeEndian.AppendUint32(b, hi)
	}
	bad := error(syscall.EBADMSG)
	for name, c := range map[string]struct {
		b    []byte
		want sys.ZerocopyNotice
		err  error
	}{
		"none":          {nil, sys.ZerocopyNotice{}, bad},
		"ipv4":          {sys.Cmsg(ip, recverr, le(5, 0, 3, 7)), sys.ZerocopyNotice{Lo: 3, Hi: 7}, nil},
		"ipv6, copied":  {sys.Cmsg(ip6, recverr6, le(5, 1, 1<<32-1, 1)), sys.ZerocopyNotice{Lo: 1<<32 - 1, Hi: 1, Copied: true}, nil},
		"second":        {append(sys.Cmsg(1, 29, make([]byte, 16)), sys.Cmsg(ip, recverr, le(5, 0, 0, 0))...), sys.ZerocopyNotice{}, nil},
		"icmp":          {sys.Cmsg(ip, recverr, le(2, 0, 3, 7)), sys.ZerocopyNotice{}, bad},
		"short":         {sys.Cmsg(ip, recverr, le(5, 0, 3, 7)[:12]), sys.ZerocopyNotice{}, bad},
		"cut":           {sys.Cmsg(ip, recverr, le(5, 0, 3, 7))[:20], sys.ZerocopyNotice{}, bad},
		"half a header": {make([]byte, 3), sys.ZerocopyNotice{}, bad},
	} {
		got, err := sys.ParseNotice(c.b)
		want(t, name, got, err, c.want, c.err)
	}
}

func TestSIOCATMARK(t *testing.T) {
	near, far := sockets.TCPPair(t)
	fd := sockets.FD(t, near)
	at, err := sys.SIOCATMARK(fd)
	want(t, "with nothing queued", at, err, false, nil)
	if _, err := sys.Send(sockets.FD(t, far), []byte("a!"), sys.MSG_OOB); err != nil {
		t.Fatal(err)
	}
	await(t, fd)
	at, err = sys.SIOCATMARK(fd)
	want(t, "before the mark", at, err, false, nil)
	n, err := sys.Recv(fd, make([]byte, 10), sys.MSG_DONTWAIT)
	want(t, "the byte before it", n, err, 1, nil)
	at, err = sys.SIOCATMARK(fd)
	want(t, "at the mark", at, err, true, nil)
	at, err = sys.SIOCATMARK(-1)
	want(t, "nowhere", at, err, false, error(syscall.EBADF))
	if n := testing.AllocsPerRun(50, func() { sys.SIOCATMARK(fd) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
