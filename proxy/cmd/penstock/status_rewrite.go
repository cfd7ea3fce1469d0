package main

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/display"
)

// rewrites writes the line of a listener's sessions that are rewritten.
func (t *statusText) rewrites(r *admin.Rewrites) {
	if r == nil {
		return
	}
	var masked int64
	for _, n := range r.Masked {
		masked += n
	}
	text := fmt.Sprintf("rewritten: %s in %d sessions, which is not zero-copy", display.Bytes(r.Bytes), r.Sessions)
	if masked > 0 || len(r.Modules) == 0 {
		text += fmt.Sprintf("; %d masked%s", masked, byReason(r.Masked))
	}
	if r.Late > 0 {
		text += fmt.Sprintf("; %s had gone on before", display.Bytes(r.Late))
	}
	if r.OffLoop > 0 {
		text += fmt.Sprintf("; %d clients refused, for want of descriptors", r.OffLoop)
	}
	if r.Encrypted > 0 {
		text += fmt.Sprintf("; %d sessions reset, which were encrypted", r.Encrypted)
	}
	if r.Unframed > 0 {
		text += fmt.Sprintf("; %d sessions reset, which were not of the framing", r.Unframed)
	}
	t.note("%s", text)
	for _, m := range r.Modules {
		t.note("rewritten %s by %s (%s), of which sessions have %d instances", m.Direction, m.File, m.Engine, m.Instances)
	}
	if len(r.Modules) > 0 {
		t.note("modules: %d calls of %s, which made %s", r.Calls, mean(r.TimeUs, r.Calls), display.Bytes(r.BytesOut))
	}
	if len(r.Reset) > 0 {
		t.note("sessions reset because of a module%s", byReason(r.Reset))
	}
	if len(r.Passed) > 0 {
		t.note("sessions whose bytes have gone on as they came, because a module had failed%s", byReason(r.Passed))
	}
}

// mean is the mean time of calls.
func mean(us, calls int64) string {
	if calls == 0 {
		return "none"
	}
	return (time.Duration(us) * time.Microsecond / time.Duration(calls)).String()
}
