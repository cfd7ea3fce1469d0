package server_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestRestartLosesNobody: clients that connect while the only endpoint is away are held, on loops
// and where TLS ends here. All of them are served when it is back. Those that leave meanwhile are
// dropped. Nothing is configured, and no check has to find the outage.
func TestRestartLosesNobody(t *testing.T) {
	t.Parallel()

	for name, terminated := range map[string]string{"loops": "", "goroutines": "tls: {certificates: [{cert: c.pem, key: k.pem}]}, "} {
		t.Run(name, func(t *testing.T) {
			port := sockets.Port(t)
			server := serverAt(t, port, "before")
			cert, key := certificate.New(t, "front.test")
			r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", %supstream: u}]
upstreams: [{name: u, endpoints: [{address: "127.0.0.1:%s", name: a}], health_check: off, queue: {hold: 1m}}]`, terminated, port), "c.pem", cert, "k.pem", key)
			ask := func() (string, error) {
				c, err := net.DialTimeout("tcp", r.At("l"), patience)
				if err != nil {
					return "", err
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				if terminated != "" {
					c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
				}
				return sockets.ReadLine(c)
			}
			if got, err := ask(); got != "before" {
				t.Fatal(got, err)
			}
			server.Close()
			const clients = 50
			var all sync.WaitGroup
			for range clients {
				all.Go(func() {
					if got, err := ask(); got != "after" {
						t.Errorf("%q, %v", got, err)
					}
				})
			}
			held := func(n int64) func() bool {
				return func() bool { u := r.Status().Upstreams[0]; return u.Held == n && u.Pending >= n-1 }
			}
			r.Until("the clients are held", held(clients))
			leaves := client(t, r.At("l"))
			if terminated == "" {
				r.Until("one more is held", held(clients+1))
			}
			_ = leaves.SetLinger(0)
			leaves.Close()
			serverAt(t, port, "after")
			all.Wait()
			r.Until("no client is held", func() bool {
				u := r.Status().Upstreams[0]
				return u.Pending == 0 && u.Active == 0 && len(u.Reasons) == 0
			})
		})
	}
}

// TestHeldAreRefusedInTime: a client that no endpoint can serve is refused after its hold time,
// and at once when the limit of held clients is reached.
func TestHeldAreRefusedInTime(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], queue: {size: 1, hold: 300ms}}]`, sockets.Refusing(t)))
	began := time.Now()
	first := client(t, r.At("l"))
	r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
	refused(t, r.At("l"))
	if err := gone(t, first); errors.Is(err, errTimeout) {
		t.Error(err)
	}
	if took := time.Since(began); took < 300*time.Millisecond || took > 5*time.Second {
		t.Errorf("the client was held for %v", took)
	}
}
