package hostile_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/clienthello"
	"github.com/penstock/penstock/internal/testutil/condition"
)

// usual is the expected maximum time of an honest client, on a machine that is busy with the
// tests themselves. Ten times as long is allowed.
const usual = 300 * time.Millisecond

func helloOf(t *testing.T, name string, protocols ...string) []byte {
	t.Helper()
	return clienthello.Of(t, &tls.Config{ServerName: name, NextProtos: protocols, CurvePreferences: []tls.CurveID{tls.X25519}})
}

func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	return dialFrom(t, "", address)
}

func dialFrom(t *testing.T, from, address string) *net.TCPConn {
	t.Helper()
	c, err := tryFrom(t, from, address)
	must(t, err)
	return c
}

// tryFrom is dialFrom for a client that may be reset before connect returns.
func tryFrom(t *testing.T, from, address string) (*net.TCPConn, error) {
	t.Helper()
	d := net.Dialer{Timeout: condition.Patience, KeepAlive: -1}
	d.SetMultipathTCP(false)
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	c, err := d.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(condition.Patience)))
	return c.(*net.TCPConn), nil
}

func crowd(t *testing.T, n int, address string) []*net.TCPConn {
	t.Helper()
	list := make([]*net.TCPConn, n)
	for i := range list {
		list[i] = dial(t, address)
	}
	return list
}

// closeAll closes clients with a reset, so that they leave at once.
func closeAll(list []*net.TCPConn) {
	for _, c := range list {
		_ = c.SetLinger(0)
		c.Close()
	}
}

func exchange(c net.Conn, b []byte) error {
	if _, err := c.Write(b); err != nil {
		return err
	}
	got := make([]byte, len(b))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !bytes.Equal(got, b) {
		return fmt.Errorf("received %d bytes that differ from those sent", len(b))
	}
	return nil
}

// Honest clients connect one after the other, and expect their bytes back, until Stop.
type honest struct {
	t     *testing.T
	stop  chan struct{}
	done  sync.WaitGroup
	n     int
	worst time.Duration
	err   error
}

func serveHonest(t *testing.T, address string, send []byte) *honest {
	return honestBy(t, func() error {
		c, err := net.DialTimeout("tcp", address, condition.Patience)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		return exchange(c, send)
	})
}

func honestBy(t *testing.T, try func() error) *honest {
	h := &honest{t: t, stop: make(chan struct{})}
	h.done.Go(func() {
		for {
			began := time.Now()
			if h.err = try(); h.err != nil {
				return
			}
			h.n++
			h.worst = max(h.worst, time.Since(began))
			select {
			case <-h.stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	return h
}

// Stop stops the clients, and returns how many have connected. The test fails unless all of them
// were served in time.
func (h *honest) Stop() int {
	h.t.Helper()
	close(h.stop)
	h.done.Wait()
	if h.err != nil || h.worst > 10*usual {
		h.t.Errorf("after %d honest clients, of which the slowest took %v: %v", h.n, h.worst, h.err)
	}
	h.t.Logf("%d honest clients, the slowest took %v", h.n, h.worst)
	return h.n
}
