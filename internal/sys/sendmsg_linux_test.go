package sys_test

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
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
