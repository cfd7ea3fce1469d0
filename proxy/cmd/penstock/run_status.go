package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/proxy/rollback"
)

// lineAfter is line after a reload. A refused reload is reported until the next one, because
// systemd takes the process for reloaded in any case.
func (r *daemon) lineAfter(err error) string {
	if err == nil || errors.Is(err, rollback.ErrClosed) {
		return r.line()
	}
	return fmt.Sprintf("%s is in force; the reload at %s was refused: %v", r.line(), time.Now().Format("15:04:05"), err)
}
