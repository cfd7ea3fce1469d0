//go:build !linux

package vecio

import (
	"errors"
	"fmt"
)

// Reap returns 0: there is no MSG_ZEROCOPY here.
func (w *Writer) Reap() (int, error) { return 0, nil }

// Abort fails: there is no NewSocket here.
func (w *Writer) Abort() error {
	return fmt.Errorf("penstock: vecio: abort: %w", errors.ErrUnsupported)
}

func (w *Writer) openOptions(*zeroCopy) error {
	if w.config.ZeroCopy > 0 {
		w.zero = &zeroCopy{stats: ZeroCopyStats{State: ZeroCopyPath}}
	}
	return nil
}
