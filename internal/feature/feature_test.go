package feature_test

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestError(t *testing.T) {
	var err error = fmt.Errorf("wrapped: %w", &feature.Error{Feature: "splice", Err: syscall.EPERM})
	for _, target := range []error{feature.ErrNotSupported, errors.ErrUnsupported, syscall.EPERM} {
		must.Is(t, err, target)
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(syscall.EPERM, feature.ErrNotSupported) {
		t.Error("matches too much")
	}
	if errors.Is(&feature.Error{Feature: "splice"}, syscall.EPERM) {
		t.Error("without a cause there is none to match")
	}
}

// TestProbeRemembers: conclusive answers are kept, others are not.
func TestProbeRemembers(t *testing.T) {
	no := &feature.Error{Feature: "x"}
	for _, c := range []struct {
		name    string
		answers []error
		want    []error
		calls   int
	}{
		{"yes", []error{nil, no}, []error{nil, nil}, 1},
		{"no", []error{no, nil}, []error{no, no}, 1},
		{"not now, then yes", []error{syscall.EMFILE, syscall.EINTR, nil, no}, []error{syscall.EMFILE, syscall.EINTR, nil, nil}, 3},
		{"not now, then no", []error{syscall.ENOMEM, no, nil}, []error{syscall.ENOMEM, no, no}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls := 0
			p := feature.Probe{Do: func() error { calls++; return c.answers[calls-1] }}
			for i, want := range c.want {
				if got := p.Supported(); got != want {
					t.Errorf("answer %d: %v, want %v", i, got, want)
				}
			}
			if calls != c.calls {
				t.Errorf("asked %d times, want %d", calls, c.calls)
			}
		})
	}
}

func TestProbeAsksOnce(t *testing.T) {
	var mu sync.Mutex
	calls := 0
	p := feature.Probe{Do: func() error { mu.Lock(); calls++; mu.Unlock(); return nil }}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := p.Supported(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if calls != 1 {
		t.Fatalf("asked %d times, want 1", calls)
	}
}
