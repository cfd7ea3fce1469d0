package million

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// shared is how many pairs all sessions share: session i has pair i%shared.
const shared = 64

// A link is the sockets of a session: the near ends belong to the session, the far ends to its
// client and server.
type link struct {
	nearA, farA, nearB, farB int // owned
}

func newLink() (*link, error) {
	k := &link{nearA: -1, farA: -1, nearB: -1, farB: -1}
	var err error
	if k.nearA, k.farA, err = sys.SocketPair(); err == nil {
		k.nearB, k.farB, err = sys.SocketPair()
	}
	if err != nil {
		k.close()
		return nil, fmt.Errorf("million: %w", os.NewSyscallError("socketpair", err))
	}
	return k, nil
}

func (k *link) close() {
	for _, fd := range []*int{&k.nearA, &k.farA, &k.nearB, &k.farB} {
		if *fd >= 0 {
			_ = sys.Close(*fd)
		}
		*fd = -1
	}
}

// links are those that sessions share.
type links []*link

func newLinks() (links, error) {
	var ks links
	for range shared {
		k, err := newLink()
		if err != nil {
			ks.close()
			return nil, err
		}
		ks = append(ks, k)
	}
	return ks, nil
}

func (ks links) close() {
	for _, k := range ks {
		k.close()
	}
}

// of is the one of session i.
func (ks links) of(i int) *link { return ks[i%len(ks)] }

// send sends all of b.
func send(fd int, b []byte) error {
	n, err := sys.Send(fd, b, sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
	if err == nil && n < len(b) {
		err = fmt.Errorf("%d bytes of %d", n, len(b))
	}
	if err != nil {
		return fmt.Errorf("million: send: %w", err)
	}
	return nil
}

// receive fills b with received bytes.
func receive(fd int, b []byte) error {
	n, err := sys.Recv(fd, b, sys.MSG_DONTWAIT)
	if err == nil && n < len(b) {
		err = fmt.Errorf("%d bytes of %d", n, len(b))
	}
	if err != nil {
		return fmt.Errorf("million: receive: %w", err)
	}
	return nil
}

// stuff sends as much as fits.
func stuff(fd int) error {
	junk := make([]byte, 32<<10)
	for size := len(junk); size > 0; {
		switch _, err := sys.Send(fd, junk[:size], sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL); {
		case errors.Is(err, syscall.EAGAIN):
			size /= 2
		case err != nil:
			return fmt.Errorf("million: send: %w", err)
		}
	}
	return nil
}

// drain receives all that is there.
func drain(fd int) error {
	b := make([]byte, 64<<10)
	for {
		switch _, err := sys.Recv(fd, b, sys.MSG_DONTWAIT); {
		case errors.Is(err, syscall.EAGAIN):
			return nil
		case err != nil:
			return fmt.Errorf("million: receive: %w", err)
		}
	}
}
