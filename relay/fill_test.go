package relay_test

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"testing"
	"time"
)

var filler = sync.OnceValue(func() []byte { return content(5, 1<<20) })

// fillUp writes to c until the whole way to a peer that does not read is full
// (nothing more went in for a while), and returns how many bytes went in.
func fillUp(t testing.TB, c halfConn) int64 {
	t.Helper()
	return fillFrom(t, c, 0)
}

// fillFrom is fillUp with the filler from a position on, again and again.
func fillFrom(t testing.TB, c halfConn, at int64) int64 {
	t.Helper()
	var sent int64
	block := filler()
	const window = 50 * time.Millisecond
	for quiet, windows := 0, 0; quiet < 3 && windows < 100; windows++ {
		end := time.Now().Add(window)
		_ = c.SetWriteDeadline(end)
		for {
			n, err := c.Write(block[(at+sent)%int64(len(block)):])
			sent += int64(n)
			if n > 0 {
				quiet = 0
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				t.Fatalf("fill up: %v", err)
			}
		}
		if quiet++; time.Since(end) > window/2 {
			quiet = 0 // we were late ourselves, and so may be who moves the bytes
		}
	}
	_ = c.SetWriteDeadline(time.Now().Add(patience))
	return sent
}

// isFiller reports whether b is what fillFrom writes from a position on.
func isFiller(b []byte, at int64) bool {
	for block := filler(); len(b) > 0; {
		want := block[at%int64(len(block)):]
		want = want[:min(len(want), len(b))]
		if !bytes.Equal(b[:len(want)], want) {
			return false
		}
		b, at = b[len(want):], at+int64(len(want))
	}
	return true
}
