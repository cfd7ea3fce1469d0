package server_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
)

// TestWhySocketsClose: the cause of the end of sessions whose listening socket is closed is what has become of their listener.
func TestWhySocketsClose(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}%s]
upstreams: [{name: u, endpoints: [%q], drain_timeout: 0}]`
	const m, moved = `, {name: m, bind: "127.0.0.1:0", upstream: u}`, `, {name: m, bind: "127.0.0.2:0", upstream: u}`
	for cause, close := range map[string]func(r *rig) error{
		"its listener is gone":              func(r *rig) error { r.Reload(fmt.Sprintf(text, "", a)); return nil },
		"its listener has left the address": func(r *rig) error { r.Reload(fmt.Sprintf(text, moved, a)); return nil },
		"its listener was drained":          func(r *rig) error { return r.DrainListener("m", "test") },
	} {
		t.Run(cause, func(t *testing.T) {
			r := start(t, fmt.Sprintf(text, m, a))
			c := client(t, r.At("m"))
			line(t, c)
			if err := close(r); err != nil {
				t.Fatal(err)
			}
			if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%v, want a reset", err)
			}
			r.Logs(`msg="sessions cut" listener=m sessions=1`, fmt.Sprintf("cause=%q", cause))
		})
	}
}
