package vecio_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/vecio"
)

// A zeroCopier writes owned pieces with MSG_ZEROCOPY to a descriptor that a loop owns. It
// continues when epoll reports room, and reaps when epoll reports EPOLLERR.
type zeroCopier struct {
	t     *testing.T
	loop  *loop.Loop
	w     *vecio.Writer
	id    loop.ID
	fd    int // owned
	left  [][]byte
	owner *lender
	reaps int
}

func (z *zeroCopier) Ready(_ uint8, events loop.Events) {
	if events&loop.Failed != 0 {
		z.reaps++
		if _, err := z.w.Reap(); err != nil {
			z.end(err)
			return
		}
	}
	for len(z.left) > 0 && z.w.Pending() == 0 {
		p := z.owner.lend(z.left[0])
		z.left = z.left[1:]
		if err := z.w.Own(p, z.owner); err != nil {
			z.end(err)
			return
		}
		if err := z.w.Flush(); err != nil && !errors.Is(err, vecio.ErrBlocked) {
			z.end(err)
			return
		}
	}
	if err := z.w.Flush(); err != nil && !errors.Is(err, vecio.ErrBlocked) {
		z.end(err)
		return
	}
	switch held, err := z.w.Reap(); {
	case err != nil:
		z.end(err)
	case len(z.left) == 0 && z.w.Pending() == 0 && held == 0:
		z.end(nil)
	}
}

func (z *zeroCopier) end(err error) {
	if err != nil {
		z.t.Error(err)
	}
	z.loop.Drop(z.id)
	z.loop.Stop()
}

// TestZeroCopyOnALoop: pieces go back only when the kernel is done with them, which
// EPOLLERR reports to the loop. The bytes arrive as lent.
func TestZeroCopyOnALoop(t *testing.T) {
	client, server := sockets.TCPPair(t)
	l, err := loop.New(nil)
	must(t, err)
	defer l.Close()
	fd, err := loop.Take(client)
	must(t, err)
	defer sys.Close(fd)
	z := &zeroCopier{t: t, loop: l, fd: fd, owner: newLender(t)}
	z.w, err = vecio.NewSocket(fd, &vecio.Config{ZeroCopy: 10 << 10})
	must(t, err)
	if s := z.w.Stats().ZeroCopy.State; s != vecio.ZeroCopyOn {
		t.Skipf("needs SO_ZEROCOPY (Linux 4.14): %v", s)
	}
	want := make([]byte, 64*40<<10)
	for i := range want {
		want[i] = byte(i * 31 >> 3)
	}
	for i := 0; i < len(want); i += 40 << 10 {
		z.left = append(z.left, want[i:i+40<<10])
	}
	pieces := len(z.left)
	got := make(chan []byte, 1)
	go func() {
		b := make([]byte, len(want))
		n, _ := io.ReadFull(server, b)
		got <- b[:n]
	}()
	z.id, err = l.Add(fd, 0, z)
	must(t, err)
	must(t, l.Post(func() { z.Ready(0, loop.Writable) }))
	must(t, l.Run())
	if b := <-got; !bytes.Equal(b, want) {
		t.Errorf("%d bytes arrived of %d, or others", len(b), len(want))
	}
	z.owner.want(pieces, 0)
	s := z.w.Stats().ZeroCopy
	if s.Calls == 0 || s.Done+s.Copied == 0 || s.Held != 0 {
		t.Errorf("%+v", s)
	}
	must(t, z.w.Close())
}
