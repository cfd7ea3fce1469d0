package sessionlog

import (
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
)

// EventOf returns the event of a record as lines are made of it.
func EventOf(k Kind, now int64, r *record.Record) (e Event) {
	e.set(k, now, r)
	e.bound()
	return e
}

func (e *Event) Set(k Kind, now int64, r *record.Record) { e.set(k, now, r) }
func (e *Event) Error() string                           { return e.error }

// Hang makes each write of opened settings, to a file, wait for a channel.
func (s *Settings) Hang(until <-chan struct{}) { s.sink = hanging{s.sink.(*stream), until} }

type hanging struct {
	*stream
	until <-chan struct{}
}

func (h hanging) flush() {
	if len(h.ends) > 0 {
		<-h.until
	}
	h.stream.flush()
}

func (e *Event) State() string { return e.state() }

// Format returns the line of an event, whose clock is nanoseconds since the epoch.
func Format(format, template string, e *Event) (string, error) {
	f, err := Formatter(format, template)
	if err != nil {
		return "", err
	}
	return string(f(nil, e)), nil
}

// Formatter returns a function that appends lines, as Format makes them.
func Formatter(format, template string) (func(b []byte, e *Event) []byte, error) {
	f, err := formatterOf(format, template)
	c := newContext()
	c.wall = func(clock int64) time.Time { return time.Unix(0, clock) }
	return func(b []byte, e *Event) []byte { return f(b, e, c) }, err
}
