//go:build linux

package verdict_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/sockopt"
)

// BenchmarkCongestion is a download over a way of 40 ms that loses packets, through a listener with each congestion
// control. An operation is one connection, of two seconds.
func BenchmarkCongestion(b *testing.B) {
	newNetwork(b) // or it is skipped
	path := program(b)
	for _, percent := range []float64{0, 0.1, 1, 3} {
		for _, name := range []string{"cubic", "bbr"} {
			b.Run(fmt.Sprintf("loss=%v%%/%s", percent, name), func(b *testing.B) {
				if used, err := sockopt.TryCongestion(name); used != name {
					b.Skipf("this kernel has it not, or not for this process: %v", err)
				}
				var bytes int64
				for range b.N {
					n, err := download(b, path, name, percent)
					if err != nil {
						b.Fatal(err)
					}
					bytes += n
				}
				b.ReportMetric(float64(bytes)/float64(b.N)/downloadTime.Seconds()/1e6, "MB/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

const downloadTime = 2 * time.Second

func download(b *testing.B, path string, congestion string, percent float64) (int64, error) {
	n := newNetwork(b)
	way, err := lengthen(n.clientRouter, 20*time.Millisecond, 0)
	if err != nil {
		return 0, err
	}
	defer way.close()
	defer n.clientRouter.lose(n.clientRouter.outer, percent)()
	ln, err := n.listen(0)
	if err != nil {
		return 0, err
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer ln.Close()
	serving.Go(func() {
		if c, err := ln.Accept(); err == nil {
			_, _ = io.Copy(c, zeros{})
			c.Close()
		}
	})
	balancer, err := startBalancer(b, n, path, ln.Addr(), ", connect: on_data, socket: {congestion: "+congestion+"}", "")
	if err != nil {
		return 0, err
	}
	defer balancer.close()
	c, err := dial(n.client, balancer.at, 0)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return receive(c)
}

// receive asks for the bytes, and counts those that arrive in downloadTime.
func receive(c net.Conn) (int64, error) {
	_, err := io.WriteString(c, "x")
	if err = errors.Join(err, c.SetReadDeadline(time.Now().Add(downloadTime))); err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}

// zeros is a reader of zeros.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }
