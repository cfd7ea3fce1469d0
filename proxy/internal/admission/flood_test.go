package admission

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A looked is a connection that counts how often the limiter looks at it.
type looked struct {
	net.Conn
	looks *atomic.Int64
}

func (c *looked) SyscallConn() (syscall.RawConn, error) {
	c.looks.Add(1)
	return nil, errors.ErrUnsupported
}

// TestLooksOfAFlood: clients that come as soon as there is a place, and send nothing, cost a bounded number of looks each.
func TestLooksOfAFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most, clients = 64, 20_000
		l := New(most, time.Second)
		defer l.Close()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go conn.Read(make([]byte, 1))
			}
		}()
		var looks atomic.Int64
		places := make(chan struct{}, most)
		for n := range clients {
			places <- struct{}{}
			if n < most {
				time.Sleep(silentTime / (most + 1)) // their turns do not come together
			}
			client, conn := net.Pipe()
			defer client.Close()
			l.Put(&looked{conn, &looks}, nil, Reads, nil, func() { <-places })
			if each := looks.Load() / int64(n+1); each > 10*most {
				t.Fatalf("%d looks for each of %d clients", each, n+1)
			}
		}
	})
}
