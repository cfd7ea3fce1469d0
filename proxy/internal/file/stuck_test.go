package file

import (
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
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
	condition.Await(t, "none is stuck", func() bool { return r.stuck.Load() == 0 })
	if err := good(); err != nil {
		t.Error(err)
	}
}

// TestManyReadsAtOnce: reads that are under way are not stuck, however many there are.
func TestManyReadsAtOnce(t *testing.T) {
	var all, began sync.WaitGroup
	goOn := make(chan bool)
	r := &reader{after: func(time.Duration) <-chan time.Time { return nil }, now: func(path string, _ int) ([]byte, error) {
		began.Done()
		<-goOn
		return []byte(path), nil
	}}
	began.Add(3 * maxStuck)
	for range 3 * maxStuck {
		all.Go(func() {
			if _, err := r.read("f", 1); err != nil {
				began.Done()
				t.Error(err)
			}
		})
	}
	began.Wait()
	close(goOn)
	all.Wait()
	if n := r.stuck.Load(); n != 0 {
		t.Errorf("%d are stuck", n)
	}
}

// TestLooksThatHang: a look that does not return is given up after a while, and others of its name fail at once until it has
// returned. Looks of other names go on.
func TestLooksThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang, began := make(chan bool), time.Now()
		for range 3 {
			if _, err := Within("hangs", func() int { <-hang; return 1 }); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
			if n, err := Within("good", func() int { return 2 }); n != 2 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		if took := time.Since(began); took != lookTime {
			t.Errorf("they took %v", took)
		}
		close(hang)
		synctest.Wait()
		if n, err := Within("hangs", func() int { return 3 }); n != 3 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}
