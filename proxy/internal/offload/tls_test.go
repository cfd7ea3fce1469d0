package offload_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/proxy/internal/offload"
)

// TestEndpointThatTakesNothing: an endpoint that does not take its first bytes holds its client no longer than a connect
// may take, and no longer than the client stays.
func TestEndpointThatTakesNothing(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		timeout, leaves, want time.Duration
	}{
		"the time to connect":  {5 * time.Second, time.Hour, 5 * time.Second},
		"no time to connect":   {0, time.Hour, 10 * time.Second},
		"the client has gone":  {5 * time.Second, time.Second, time.Second},
		"gone, and no timeout": {0, time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				conn, endpoint := net.Pipe()
				defer endpoint.Close()
				defer conn.Close()
				ctx, leave := context.WithCancel(context.Background())
				defer leave()
				time.AfterFunc(c.leaves, leave)
				if c.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.timeout)
					defer cancel()
				}
				begin := time.Now()
				err := offload.Send(ctx, conn, []byte("PROXY UNKNOWN\r\n"))
				if took := time.Since(begin); !errors.Is(err, os.ErrDeadlineExceeded) || took != c.want {
					t.Errorf("%v after %v, want the end of the deadline after %v", err, took, c.want)
				}
			})
		})
	}
}

// TestNoDeadlineStays: a connection to an endpoint that has taken its first bytes is used after the time for them.
func TestNoDeadlineStays(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		conn, endpoint := net.Pipe()
		defer endpoint.Close()
		defer conn.Close()
		go func() {
			b := make([]byte, 8)
			for {
				if _, err := endpoint.Read(b); err != nil {
					return
				}
			}
		}()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		first := offload.Send(ctx, conn, []byte("first"))
		cancel()
		time.Sleep(time.Minute)
		if _, err := conn.Write([]byte("next")); first != nil || err != nil {
			t.Errorf("%v, %v", first, err)
		}
	})
}
