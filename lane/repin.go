package lane

import (
	"fmt"
	"io/fs"
	"net"
	"syscall"
)

// Repin has sessions survive the process again if the pins in [Config.Pin] were removed: it pins the programs and their maps anew if all files are
// gone, and reports whether it has. It is cheap: a caller calls it now and then. The error says why sessions in the lane
// would not go on, and nothing is changed then: it wraps [fs.ErrNotExist] if a part of the files is missing, or the directory of Open, and
// [fs.ErrExist] if there are files of another lane. Without pins it does nothing.
func (l *Lane) Repin() (again bool, err error) {
	l.pins.Lock()
	defer l.pins.Unlock()
	l.mu.Lock()
	open := l.open
	l.mu.Unlock()
	switch {
	case !open:
		return false, fmt.Errorf("lane: pins: %w", net.ErrClosed)
	case l.lock < 0:
		return false, nil
	}
	if err = l.isLocked(); err == nil {
		again, err = l.program.Repin()
	}
	if err != nil {
		return false, fmt.Errorf("lane: pins: %w", err)
	}
	return again, nil
}

// isLocked returns an error if the directory of pins is not the one that Open has locked.
func (l *Lane) isLocked() error {
	var at, ours syscall.Stat_t
	if err := syscall.Stat(l.cfg.Pin, &at); err != nil {
		return &fs.PathError{Op: "stat", Path: l.cfg.Pin, Err: err}
	}
	if err := syscall.Fstat(l.lock, &ours); err != nil {
		return &fs.PathError{Op: "fstat", Path: l.cfg.Pin, Err: err}
	}
	if at.Dev != ours.Dev || at.Ino != ours.Ino {
		return fmt.Errorf("the directory %s was removed and made anew: %w", l.cfg.Pin, fs.ErrNotExist)
	}
	return nil
}

// unpin removes the pins at the end of the lane.
func (l *Lane) unpin() error {
	l.pins.Lock()
	defer l.pins.Unlock()
	return l.program.Unpin()
}
