package file

import (
	"errors"
	"os"
	"testing"
	"time"
)

// TestReadsThatHang: a read that does not return is given up, and others go on; when many do not, no more are
// begun until some have returned.
func TestReadsThatHang(t *testing.T) {
	hang, returned := make(chan bool), make(chan bool)
	now := func(path string, _ int) ([]byte, error) {
		if path == "hangs" {
			<-hang
			defer func() { returned <- true }()
		}
		return []byte(path), nil
	}
	gaveUp := make(chan time.Time)
	r := &reader{now: now, after: func(time.Duration) <-chan time.Time { return nil }}
	good := func() error { _, err := r.read("good", 1); return err }
	close(gaveUp)
	for i := range maxStuck {
		if err := good(); err != nil {
			t.Errorf("with %d that hang: %v", i, err)
		}
		for r.stuck.Load() > int32(i) { // the goroutine of the last good one ends
			time.Sleep(time.Millisecond)
		}
		r.after = func(time.Duration) <-chan time.Time { return gaveUp }
		if _, err := r.read("hangs", 1); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		r.after = func(time.Duration) <-chan time.Time { return nil }
	}
	if err := good(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("beside %d that hang: %v", maxStuck, err)
	}
	close(hang)
	for range maxStuck {
		<-returned
	}
	for r.stuck.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	if err := good(); err != nil {
		t.Error(err)
	}
}
