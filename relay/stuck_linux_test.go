package relay_test

import (
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// unending is a stream whose Read nothing ends.
type unending struct {
	io.Reader
	io.Writer
}

func (unending) Close() error { return nil }

// TestReadThatNothingEnds: the other connection is closed all the same, so that its peer does not wait.
func TestReadThatNothingEnds(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	peer, near := tcp(t)
	silent, end := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		_, _ = r.Join(ctx, relay.Stream(unending{silent, io.Discard}), near)
		close(ended)
	}()
	cancel()
	_ = peer.SetReadDeadline(time.Now().Add(patience))
	if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer sees %v", err)
	}
	end.Close()
	<-ended
}
