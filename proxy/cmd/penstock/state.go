package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/state"
)

// openState opens the file of changes by hand. Without it the process starts all the same.
func (r *daemon) openState(cfg *config.Config) {
	path := cfg.StatePath(r.env)
	if path == "" {
		return
	}
	st := state.Open(path)
	r.options.State = st
	if err := cmp.Or(st.Corrupt(), st.Err()); err != nil {
		r.log.Error("the file of changes by hand cannot be used", "file", path, "error", err)
	}
}

// closeState leaves the file of changes by hand to a successor.
func (r *daemon) closeState() {
	if r.options.State == nil {
		return
	}
	if err := r.options.State.Close(); err != nil {
		r.log.Error("changes by hand are not kept over a restart", "error", err)
	}
}

// writeLive writes the changes by hand of a plan.
func writeLive(w io.Writer, list []admin.LiveChange) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(w, "changes by hand:")
	for i := range list {
		c := &list[i]
		fmt.Fprintf(w, "  %s\n", display.Text(c.What))
		then := "stays"
		if c.Ends != "" {
			then = "ends: " + c.Ends
		}
		fmt.Fprintf(w, "    %s\n", display.Text(fmt.Sprintf("by %s at %s; %s", c.By, c.Since.Local().Format(time.DateTime), then)))
	}
}
