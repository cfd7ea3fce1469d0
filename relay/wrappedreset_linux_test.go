package relay_test

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

// hides is a wrapper that shows nothing of its connection.
type hides struct{ net.Conn }

// lets lets a relay go beneath it.
type lets struct{ net.Conn }

func (l lets) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return l.Conn, nil, nil
}
func (l lets) RelayWriter() io.Writer { return l.Conn }

// TestResetBeneathWrappers: a reset passes a wrapper that shows its connection. One that does not is closed, and its peer sees an end of file.
func TestResetBeneathWrappers(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		wrap func(net.Conn) net.Conn
		want error
	}{
		"hides":     {func(c net.Conn) net.Conn { return hides{c} }, io.EOF},
		"NetConn":   {func(c net.Conn) net.Conn { return beneath{c} }, syscall.ECONNRESET},
		"Unwrapper": {func(c net.Conn) net.Conn { return lets{c} }, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			client, a := sockets.TCPPair(t)
			server, b := sockets.TCPPair(t)
			ended := make(chan error, 1)
			go func() {
				_, err := relay.Join(t.Context(), c.wrap(a), c.wrap(b))
				ended <- err
			}()
			if _, err := server.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			_ = client.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(server.SetLinger(0), server.Close()); err != nil {
				t.Fatal(err)
			}
			if n, err := client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, c.want) {
				t.Errorf("after a reset the client reads %d bytes, %v, want %v", n, err, c.want)
			}
			if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the session ends with %v", err)
			}
		})
	}
}
