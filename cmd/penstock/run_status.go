package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/proxy/generation"
)

// lineAfter is line after a reload: one that was refused is told until the next one, for
// systemd takes the process for reloaded whatever has become of it.
func (r *running) lineAfter(err error) string {
	if err == nil || errors.Is(err, generation.ErrClosed) {
		return r.line()
	}
	return fmt.Sprintf("%s is in force; the reload at %s was refused: %v", r.line(), time.Now().Format("15:04:05"), err)
}
