package main

import (
	"cmp"

	"github.com/penstock/penstock/proxy/admin"
)

// congestion writes the congestion control of connections, where the file names one.
func (t *statusText) congestion(c *admin.Congestion) {
	switch {
	case c == nil:
	case c.Error != "":
		t.note("congestion control: %s in place of %s: %s", cmp.Or(c.Used, "an unknown one"), c.Configured, c.Error)
	case c.Refused > 0:
		t.note("congestion control: %s; %d connections were refused it", c.Used, c.Refused)
	default:
		t.note("congestion control: %s", c.Used)
	}
}
