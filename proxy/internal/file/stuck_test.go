package file

import (
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestReadsThatHang: a read that does not return is given up, and others go on; when many do not, no more are
// begun until some have returned.
func TestReadsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan bool)
		c := &calls{patience: 5 * time.Second, most: 16}
		read := func(path string) error {
			data, err := c.read(path, 1, func(path string, _ int) ([]byte, error) {
				if path == "hangs" {
					<-hang
				}
				return []byte(path), nil
			})
			if err == nil && string(data) != path {
				t.Errorf("%s has %q", path, data)
			}
			return err
		}
		for i := range c.most {
			if err := read("good"); err != nil {
				t.Errorf("with %d that hang: %v", i, err)
			}
			if err := read("hangs"); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
		}
		if err := read("good"); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("beside %d that hang: %v", c.most, err)
		}
		close(hang)
		synctest.Wait()
		if err := read("good"); err != nil || len(c.stuck) > 0 {
			t.Error(err, c.stuck)
		}
	})
}

// TestManyReadsAtOnce: reads that are under way are not stuck, however many there are.
func TestManyReadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all sync.WaitGroup
		goOn := make(chan bool)
		c := &calls{patience: 5 * time.Second, most: 16}
		for range 3 * c.most {
			all.Go(func() {
				if _, err := c.read("f", 1, func(string, int) ([]byte, error) { <-goOn; return nil, nil }); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(goOn)
		all.Wait()
		if len(c.stuck) > 0 {
			t.Errorf("%v are stuck", c.stuck)
		}
	})
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
		if took := time.Since(began); took != looks.patience {
			t.Errorf("they took %v", took)
		}
		close(hang)
		synctest.Wait()
		if n, err := Within("hangs", func() int { return 3 }); n != 3 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// TestLateChange: a change that was given up is undone if it succeeds later; others of its path fail until it is, and others of
// other paths go on.
func TestLateChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang, undone := make(chan bool), 0
		change := func(path string, n int) error {
			_, err := Change(path, func() (int, error) {
				if path == "hangs" {
					<-hang
				}
				return n, nil
			}, func(n int) { undone += n })
			return err
		}
		for n := range 3 {
			var failed *os.PathError
			if err := change("hangs", 1+n); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &failed) || failed.Path != "hangs" {
				t.Error(err)
			}
			if err := change("good", 8); err != nil {
				t.Error(err)
			}
		}
		close(hang)
		synctest.Wait()
		if err := change("hangs", 8); err != nil || undone != 1 {
			t.Error(err, undone)
		}
	})
}
