package shadow

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// PartServer is the name of the part that is an endpoint, or a shadow of one kind, which is its argument.
const PartServer = "mirror-server"

// A behavior is how a server treats its connections. The first byte of a connection is the kind of the
// others: bulk is thrown away, messages are echoed.
type behavior string

const (
	healthy behavior = "healthy"
	frozen  behavior = "frozen" // it accepts, and reads nothing
	slow    behavior = "slow"   // it reads slowBytes each slowPause of each connection
)

const (
	bulk     = 'b'
	messages = 'm'

	slowBytes = 16 << 10
	slowPause = 10 * time.Millisecond
)

// RunPart serves until in ends. It first prints the address that it listens at.
func RunPart(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 || !slices.Contains([]behavior{healthy, frozen, slow}, behavior(args[0])) {
		return fmt.Errorf("bench: %s takes %s, %s or %s, not %q", PartServer, healthy, frozen, slow, args)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	defer l.Close()
	if err := json.NewEncoder(out).Encode(struct{ Address string }{l.Addr().String()}); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		_ = l.Close()
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			return nil // the input has ended
		}
		go behavior(args[0]).serve(ctx, c)
	}
}

// serve treats a connection until it ends.
func (b behavior) serve(ctx context.Context, c net.Conn) {
	defer c.Close()
	buf := make([]byte, 256<<10)
	switch b {
	case frozen:
		<-ctx.Done() // which lasts as long as the process
		return
	case slow:
		for {
			if _, err := c.Read(buf[:slowBytes]); err != nil {
				return
			}
			time.Sleep(slowPause)
		}
	}
	var kind [1]byte
	if _, err := io.ReadFull(c, kind[:]); err != nil {
		return
	}
	for {
		n, err := c.Read(buf)
		if err == nil && kind[0] == messages {
			_, err = c.Write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}
