package shadow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// The traffic of a trial.
const (
	bulkConnections    = 8
	messageConnections = 64
	messageSize        = 64
	patience           = 20 * time.Second
)

// prose is the traffic's bytes: text with digits, punctuation and an address of the web.
const prose = "Order 4711 of 2026-11-26 12:30:01: three (3) boxes, see http://a.example/x?b=1&c=22; the carrier calls at 9 am.\n"

// connect opens so many connections of a kind.
func connect(ctx context.Context, address string, kind byte, n int) (all []net.Conn, err error) {
	for range n {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			all = append(all, c)
			_, err = c.Write([]byte{kind})
		}
		if err != nil {
			closeAll(all)
			return nil, err
		}
	}
	return all, nil
}

func closeAll(all []net.Conn) {
	for _, c := range all {
		_ = c.Close()
	}
}

// each runs f for every connection at once, and joins the errors.
func each(all []net.Conn, f func(i int, c net.Conn) error) error {
	errs := make([]error, len(all))
	var work sync.WaitGroup
	for i, c := range all {
		work.Go(func() { errs[i] = f(i, c) })
	}
	work.Wait()
	return errors.Join(errs...)
}

// upload sends bulk for a time, and returns the bytes per second that were taken. Every connection has ended with its
// endpoint's end of file when it returns.
func upload(ctx context.Context, address string, d time.Duration) (rate float64, err error) {
	all, err := connect(ctx, address, bulk, bulkConnections)
	if err != nil {
		return 0, err
	}
	defer closeAll(all)
	sent := make([]int64, len(all))
	began := time.Now()
	err = each(all, func(i int, c net.Conn) error {
		_ = c.SetDeadline(began.Add(d + patience))
		b := bytes.Repeat([]byte(prose), 256<<10/len(prose))
		for time.Since(began) < d {
			n, err := c.Write(b)
			if sent[i] += int64(n); err != nil {
				return fmt.Errorf("bulk: %w", err)
			}
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			return fmt.Errorf("bulk: %w", err)
		}
		if _, err := c.Read(b[:1]); err != io.EOF {
			return fmt.Errorf("bulk: no end of file: %w", err)
		}
		return nil
	})
	var sum int64
	for _, n := range sent {
		sum += n
	}
	return float64(sum) / time.Since(began).Seconds(), err
}

// converse has small messages echoed on many connections for a time, one after the other on each, and returns how
// many per second, and the 99th percentile of their time.
func converse(ctx context.Context, address string, d time.Duration) (rate float64, p99 time.Duration, err error) {
	all, err := connect(ctx, address, messages, messageConnections)
	if err != nil {
		return 0, 0, err
	}
	defer closeAll(all)
	times := make([][]time.Duration, len(all))
	began := time.Now()
	err = each(all, func(i int, c net.Conn) error {
		_ = c.SetDeadline(began.Add(d + patience))
		var b [messageSize]byte
		copy(b[:], prose)
		b[len(b)-1] = '\n' // so that no byte of it is held back
		for now := time.Now(); now.Sub(began) < d; {
			if _, err := c.Write(b[:]); err != nil {
				return fmt.Errorf("message: %w", err)
			}
			if _, err := io.ReadFull(c, b[:]); err != nil {
				return fmt.Errorf("message: %w", err)
			}
			then := now
			now = time.Now()
			times[i] = append(times[i], now.Sub(then))
		}
		return nil
	})
	took := slices.Concat(times...)
	if err == nil && len(took) == 0 {
		err = errors.New("no message was echoed in time")
	}
	if err != nil {
		return 0, 0, err
	}
	rate = float64(len(took)) / time.Since(began).Seconds()
	slices.Sort(took)
	return rate, took[len(took)*99/100], nil
}
