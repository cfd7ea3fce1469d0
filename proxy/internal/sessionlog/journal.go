package sessionlog

import (
	"bytes"
	"errors"
	"syscall"
)

// rawConner is a connection of package net with a descriptor.
type rawConner = syscall.Conn

func isBlocked(err error) bool { return errors.Is(err, syscall.EAGAIN) }

// journalPrefix begins the names of the fields in the journal.
const journalPrefix = "PENSTOCK_"

// appendJournal appends the event's fields, each on a line. A value never contains a line break, because only visible
// ASCII is written unchanged.
func appendJournal(b []byte, e *Event, c *context) []byte {
	for i := range fields {
		f := &fields[i]
		if f.name == "time" { // the journal has its own
			continue
		}
		v := f.append(c.value[:0], e, c)
		if len(v) == 0 {
			continue
		}
		b = append(append(append(b, journalPrefix...), bytes.ToUpper([]byte(f.name))...), '=')
		b = append(appendWord(b, v), '\n')
	}
	return b
}
